#include "ingot/run/guarded_step.h"

#include <algorithm>
#include <utility>

#include "ingot/core/error.h"
#include "ingot/run/run_start.h"

namespace ingot {

bool GuardedStep::make(bool may_abandon) {
  pass_excluded_samples();
  StepLine line{.at = position(), .begin = RunClock::now()};
  const RunPosition& at = line.at;
  StepOrder order{.micros = setup_.plan.micro_batches(at), .inputs = setup_.plan.inputs(at)};
  order.inputs.wants_stats = is_due_after(at.step + 1, setup_.config.train.stats_every);
  // A step that the guard may refuse must be judged before its update.
  const GuardConfig& guard = setup_.config.guard;
  const bool is_judged_first =
      guard.spike != GuardPolicy::kReport || guard.watches_memory || watch_.is_verified(at.step);
  const size_t depth = is_judged_first ? 0 : services_.trainer.depth(order.inputs);
  if (depth == 0 && !drain()) return false;
  order.is_asynchronous = depth > 0;
  order.is_stop_requested = may_abandon ? &setup_.is_interrupted : nullptr;
  begin_time_limit(order.micros);
  services_.log.begin_step(services_.trainer.trace());
  services_.trainer.submit(services_.loader, order);
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
  for (const auto& [begin, end] : progress_.excluded_samples)
    if (begin <= services_.loader.position() && services_.loader.position() < end) services_.loader.seek(end);
}

// Before a step, ranks may have waited long for rank 0, which saves or samples by itself. The step's time
// limit starts once all ranks are here.
void GuardedStep::begin_time_limit(int64_t micro_batches) {
  if (services_.time_limit.is_paused()) setup_.world.max(1);
  services_.begin_phase(TimeLimit::Phase::kStep, micro_batches);
}

void GuardedStep::end_line(StepLine& line) {
  line.after = position();
  services_.log.add_phases(services_.trainer.trace(), line.phases);
}

// Collects the oldest step in flight and makes its update. Returns false if the batch was skipped or the run
// is back before an earlier step.
bool GuardedStep::collect() {
  StepLine line = std::move(lines_.front());
  lines_.pop_front();
  const int64_t number = line.at.step + 1;
  StepResult result = services_.trainer.collect(services_.loader);
  if (result.step.is_abandoned) {
    setup_.console.line(fmt::format("step {} was abandoned before its update", number));
    return false;
  }
  const bool is_back = result.is_repeated && !lines_.empty();  // before the steps after this one
  if (result.is_repeated) {
    // In f16 the loss scale is lowered this way, and the guard reports it.
    if (setup_.config.precision.compute != DType::f16)
      setup_.console.warning(fmt::format(
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
  if (!order.is_asynchronous && !is_sound(result.non_finite || saver_.is_writing_this_step())) return false;
  if (!order.is_asynchronous && !result.non_finite && watch_.is_verified(line.at.step))
    result = verified(result, line.at);
  const Verdict verdict = services_.guard.judge(result);
  if (verdict.event == "spike" && !is_sound()) return false;
  if (!verdict.event.empty()) log_event(verdict.event, verdict.reason, number, line.at);
  if (!verdict.is_accepted()) {
    reject(verdict, line.at);
    return false;
  }
  if (!verdict.event.empty()) setup_.console.warning(fmt::format("step {}: {}", number, verdict.reason));
  services_.trainer.update(result);
  watch_.state_changed();
  if (!result.is_updated) end_line(line);
  if (const double stall_s = saver_.take_stall_s(); stall_s > 0)
    line.phases.push_back({"save_ms", 1e3 * stall_s});
  progress_.tokens += line.at.step_tokens;
  services_.beat();
  reporter_.report(result, line);
  services_.time_limit.end(reporter_.last_step_s());
  saver_.weights_were_used(line.at.step);
  if (order.inputs.wants_stats) services_.log.write_params(services_.steps_done(), services_.trainer.stats());
  return !is_back;
}

RunPosition GuardedStep::position() const {
  return setup_.plan.position(services_.steps_done(),
                              services_.loader.position() * setup_.config.model.context,
                              progress_.spent_s(setup_));
}

// Writes a line of metrics.jsonl about the batch at position `at`.
void GuardedStep::log_event(const std::string& event, const std::string& reason, int64_t step,
                            const RunPosition& at) {
  const int64_t context = setup_.config.model.context;
  services_.log.write(step,
                      {{"event", event},
                       {"reason", reason},
                       {"sample", at.tokens / context},
                       {"samples", at.step_tokens / context}},
                      false);
}

bool GuardedStep::is_sound(bool is_saving) {
  if (const std::string verdict = watch_.verdict(); !verdict.empty()) {
    log_event("corruption", verdict, services_.steps_done(), position());
    setup_.console.warning(fmt::format("step {}: {}", services_.steps_done(), verdict));
  }
  if (services_.steps_done() > furthest_step_) corruptions_ = 0;
  furthest_step_ = std::max(furthest_step_, services_.steps_done());
  const std::optional<std::string> found = watch_.look(is_saving);
  if (!found) return true;
  const int64_t step = services_.steps_done();
  constexpr int kMax = 3;
  if (++corruptions_ > kMax)
    fail(ErrorKind::kNumerics,
         "step {}: {}, for the {}th time: the memory or the processor of that machine is faulty; go on "
         "without it",
         step, *found, corruptions_);
  setup_.console.warning(fmt::format("step {}: silent corruption: {}; rolling back", step, *found));
  services_.trainer.discard();
  saver_.state_is_corrupt();
  const RunPosition at = position();
  go_back();
  log_event("corruption", fmt::format("step {}: {}", step, *found), services_.steps_done(), at);
  return false;
}

// Computes the gradients of a step again until two results agree, and returns the result of the last time.
StepResult GuardedStep::verified(const StepResult& first, const RunPosition& at) {
  StepOrder order = first.step.order;
  order.is_stop_requested = nullptr;
  StepResult result = first;
  std::string difference;
  constexpr int kMax = 4;
  for (int time = 2; time <= kMax; ++time) {
    watch_.keep_gradients(result.loss);
    services_.trainer.discard();
    services_.loader.seek(first.step.first_sample);
    services_.trainer.submit(services_.loader, order);
    result = services_.trainer.collect(services_.loader);
    if (watch_.has_same_gradients(result.loss, difference)) return result;
    const std::string text = fmt::format("{}, although nothing else did", difference);
    log_event("corruption", text, at.step + 1, at);
    setup_.console.warning(fmt::format("step {}: {}; computing again", at.step + 1, text));
  }
  fail(ErrorKind::kNumerics,
       "step {}: {}, each time that the step was computed: the processor or memory of that rank is faulty",
       at.step + 1, difference);
}

void GuardedStep::reject(const Verdict& verdict, const RunPosition& at) {
  services_.trainer.discard();
  if (verdict.policy == GuardPolicy::kStop) {
    saver_.settle();  // the run ends here
    refuse_update(at.step + 1, verdict.reason, fmt::format(", or choose another guard.{}", verdict.event));
  }
  setup_.console.warning(
      fmt::format("step {}: {}; {}", at.step + 1, verdict.reason,
                  verdict.policy == GuardPolicy::kSkip ? "batch skipped" : "rolling back"));
  if (verdict.policy == GuardPolicy::kRollback) roll_back(verdict, at);
}

// Goes back to the newest healthy checkpoint and excludes the current batch from then on.
void GuardedStep::roll_back(const Verdict& verdict, const RunPosition& at) {
  auto excluded = progress_.excluded_samples;
  excluded.push_back({at.tokens / setup_.config.model.context, services_.loader.position()});
  std::ranges::sort(excluded);
  go_back();
  progress_.excluded_samples = excluded;
  log_event("rollback", fmt::format("step {}: {}", at.step + 1, verdict.reason), services_.steps_done(), at);
}

// Restores the newest healthy checkpoint.
void GuardedStep::go_back() {
  saver_.settle();
  const TimedPhase phase(services_, TimeLimit::Phase::kSaving);  // a checkpoint is verified and read
  const auto checkpoint = newest_healthy(services_.store, setup_.console, setup_.world);
  if (!checkpoint)
    fail(ErrorKind::kNumerics,
         "{}: there is no healthy checkpoint to roll back to (checkpoint.at_start saves one before the first "
         "step)",
         services_.store.folder().string());
  saver_.restored(restore(*checkpoint, setup_, services_, progress_).saved);
  watch_.state_changed();
  setup_.console.line(fmt::format("rolled back to {}", checkpoint->path.string()));
}

}  // namespace ingot
