#include "ingot/run/guarded_step.h"

#include <algorithm>
#include <utility>

#include "ingot/core/error.h"

namespace ingot {

bool GuardedStep::make(bool may_abandon) {
  pass_excluded_samples();
  StepLine line{.at = run_.position(), .begin = RunState::Clock::now()};
  const RunPosition& at = line.at;
  StepOrder order{.micros = run_.plan.micro_batches(at), .inputs = run_.plan.inputs(at)};
  order.inputs.wants_stats =
      run_.config.train.stats_every > 0 && (at.step + 1) % run_.config.train.stats_every == 0;
  // A step that the guard may refuse must be judged before its update.
  const GuardConfig& guard = run_.config.guard;
  const bool is_judged_first =
      guard.spike != GuardPolicy::kReport || guard.watches_memory || watch_.is_verified(at.step);
  const size_t depth = is_judged_first ? 0 : run_.trainer.depth(order.inputs);
  if (depth == 0 && !drain()) return false;
  order.is_asynchronous = depth > 0;
  order.is_told_to_end = may_abandon ? &run_.is_interrupted : nullptr;
  begin_time_limit(order.micros);
  run_.log.begin_step(run_.trainer.trace());
  run_.trainer.submit(run_.loader, order);
  if (order.is_asynchronous) end_line(line);
  lines_.push_back(std::move(line));
  while (lines_.size() > depth)
    if (!collect()) return false;
  return true;
}

bool GuardedStep::drain() {
  while (!lines_.empty())
    if (!collect()) return false;
  return true;
}

void GuardedStep::pass_excluded_samples() {
  for (const auto& [begin, end] : run_.saved.excluded_samples)
    if (begin <= run_.loader.position() && run_.loader.position() < end) run_.loader.seek(end);
}

// Before a step, ranks may have waited long for rank 0, which saves or samples by itself. The step's time
// limit starts once all ranks are here.
void GuardedStep::begin_time_limit(int64_t micro_batches) {
  if (run_.time_limit.is_paused()) run_.world.max(1);
  run_.begin_phase(TimeLimit::Phase::kStep, micro_batches);
}

void GuardedStep::end_line(StepLine& line) {
  line.after = run_.position();
  run_.log.add_phases(run_.trainer.trace(), line.phases);
}

// Collects the oldest step in flight and makes its update. Returns false if the batch was skipped or the run
// is back before an earlier step.
bool GuardedStep::collect() {
  StepLine line = std::move(lines_.front());
  lines_.pop_front();
  const int64_t number = line.at.step + 1;
  StepResult result = run_.trainer.collect(run_.loader);
  if (result.step.is_abandoned) {
    run_.console.line(fmt::format("step {} was abandoned before its update", number));
    return false;
  }
  const bool is_back = result.is_repeated && !lines_.empty();  // before the steps after this one
  if (result.is_repeated) {
    // In f16 the loss scale is lowered this way, and the guard reports it.
    if (run_.config.precision.compute != DType::f16)
      run_.console.warning(fmt::format(
          "step {}: its losses or gradients are not finite{}; it changed nothing and is made again", number,
          is_back ? " (read one step later)" : ""));
    lines_.clear();
    line.phases.clear();
  }
  const StepOrder order = result.step.order;
  if (!order.is_asynchronous) saver_.wait_until_copied();
  // Before the guard judges it: a changed bit may be why it is not finite, and no fault of the batch. A state
  // that was copied for a checkpoint during this step is compared once more, before the checkpoint is
  // committed.
  if (!order.is_asynchronous && !is_state_sound(result.non_finite || saver_.is_writing_this_step()))
    return false;
  if (!order.is_asynchronous && !result.non_finite && watch_.is_verified(line.at.step))
    result = verified(result, line.at);
  const Verdict verdict = run_.guard.judge(result);
  if (verdict.event == "spike" && !is_state_sound(true)) return false;
  if (!verdict.event.empty()) run_.log_event(verdict.event, verdict.reason, number, line.at);
  if (!verdict.is_accepted()) {
    reject(verdict, line.at);
    return false;
  }
  if (!verdict.event.empty()) run_.console.warning(fmt::format("step {}: {}", number, verdict.reason));
  run_.trainer.update(result);
  watch_.state_changed();
  if (!result.is_updated) end_line(line);
  if (const double stall_s = saver_.take_stall_s(); stall_s > 0)
    line.phases.push_back({"save_ms", 1e3 * stall_s});
  run_.saved.tokens += result.tokens;
  run_.beat();
  reporter_.report(result, line);
  run_.time_limit.end(reporter_.last_step_s());
  saver_.weights_were_used(line.at.step);
  if (order.inputs.wants_stats) run_.log.write_params(run_.steps_done(), run_.trainer.stats());
  return !is_back;
}

bool GuardedStep::is_sound() { return is_state_sound(true); }

// Returns false if the state was corrupt: it is that of the newest checkpoint then.
bool GuardedStep::is_state_sound(bool is_saving) {
  if (const std::string verdict = watch_.verdict(); !verdict.empty()) {
    run_.log_event("corruption", verdict, run_.steps_done(), run_.position());
    run_.console.warning(fmt::format("step {}: {}", run_.steps_done(), verdict));
  }
  if (run_.steps_done() > furthest_step_) corruptions_ = 0;
  furthest_step_ = std::max(furthest_step_, run_.steps_done());
  const std::optional<std::string> found = watch_.look(is_saving);
  if (!found) return true;
  const int64_t step = run_.steps_done();
  constexpr int kMost = 3;
  if (++corruptions_ > kMost)
    fail(ErrorKind::kNumerics,
         "step {}: {}, for the {}th time: the memory or the processor of that machine is faulty; go on "
         "without it",
         step, *found, corruptions_);
  run_.console.warning(fmt::format("step {}: silent corruption: {}; rolling back", step, *found));
  run_.trainer.discard();
  saver_.state_is_corrupt();
  const RunPosition at = run_.position();
  go_back();
  run_.log_event("corruption", fmt::format("step {}: {}", step, *found), run_.saved.step, at);
  return false;
}

// Computes the gradients of a step again until two results agree, and returns the result of the last time.
StepResult GuardedStep::verified(const StepResult& first, const RunPosition& at) {
  StepOrder order = first.step.order;
  order.is_told_to_end = nullptr;
  StepResult result = first;
  std::string difference;
  constexpr int kMost = 4;
  for (int time = 2; time <= kMost; ++time) {
    watch_.keep_gradients(result.loss);
    run_.trainer.discard();
    run_.loader.seek(first.step.first_sample);
    run_.trainer.submit(run_.loader, order);
    result = run_.trainer.collect(run_.loader);
    if (watch_.has_same_gradients(result.loss, difference)) return result;
    const std::string text = fmt::format("{}, although nothing else did", difference);
    run_.log_event("corruption", text, at.step + 1, at);
    run_.console.warning(fmt::format("step {}: {}; computing again", at.step + 1, text));
  }
  fail(ErrorKind::kNumerics,
       "step {}: {}, each time that the step was computed: the processor or memory of that rank is faulty",
       at.step + 1, difference);
}

void GuardedStep::reject(const Verdict& verdict, const RunPosition& at) {
  run_.trainer.discard();
  if (verdict.policy == GuardPolicy::kStop) {
    saver_.settle();  // the run ends here
    refuse_update(at.step + 1, verdict.reason, fmt::format(", or choose another guard.{}", verdict.event));
  }
  run_.console.warning(fmt::format("step {}: {}; {}", at.step + 1, verdict.reason,
                                   verdict.policy == GuardPolicy::kSkip ? "batch skipped" : "rolling back"));
  if (verdict.policy == GuardPolicy::kRollback) roll_back(verdict, at);
}

// Goes back to the newest healthy checkpoint and excludes the current batch from then on.
void GuardedStep::roll_back(const Verdict& verdict, const RunPosition& at) {
  auto excluded = run_.saved.excluded_samples;
  excluded.push_back({at.tokens / run_.config.model.context, run_.loader.position()});
  std::ranges::sort(excluded);
  go_back();
  run_.saved.excluded_samples = excluded;
  run_.log_event("rollback", fmt::format("step {}: {}", at.step + 1, verdict.reason), run_.saved.step, at);
}

// Restores the newest healthy checkpoint.
void GuardedStep::go_back() {
  saver_.settle();
  const TimedPhase phase(run_, TimeLimit::Phase::kSaving);  // a checkpoint is verified and read
  const auto checkpoint = run_.newest_healthy();
  if (!checkpoint)
    fail(ErrorKind::kNumerics,
         "{}: there is no healthy checkpoint to roll back to (checkpoint.at_start saves one before the first "
         "step)",
         run_.store.folder().string());
  run_.restore(*checkpoint);
  watch_.state_changed();
  run_.console.line(fmt::format("rolled back to {}", checkpoint->path.string()));
}

}  // namespace ingot
