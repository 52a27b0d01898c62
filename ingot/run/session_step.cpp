// A step of a Session: gradients, the guard's verdict, the update, and the log line.
#include <fmt/core.h>

#include <algorithm>
#include <array>

#include "ingot/core/error.h"
#include "ingot/run/session.h"

namespace ingot {

// Before a step, ranks may have waited long for rank 0, which saves or samples by itself. The step's time
// limit starts once all ranks are here.
void Session::begin_step_limit(int64_t micro_batches) {
  if (time_limit_.is_paused()) {
    std::array<double, 1> arrived{1};
    all_.max(arrived);
  }
  time_limit_.begin(TimeLimit::Phase::kStep, micro_batches);
}

// Returns false if the batch was skipped or the run is back before an earlier step; nothing is due then.
bool Session::step() {
  pass_excluded_samples();
  StepLine line{.at = position(), .after = {}, .begin = Clock::now()};
  StepInputs inputs = plan_.inputs(line.at);
  inputs.wants_stats = config_.train.stats_every > 0 && (line.at.step + 1) % config_.train.stats_every == 0;
  // A step that the guard may refuse must be checked before its update.
  const bool is_for_device = !is_next_judged_here_ && config_.guard.spike == GuardPolicy::kReport;
  if (is_for_device && trainer_.can_submit(inputs)) return submit_step(std::move(line), inputs);
  if (!drain()) return false;
  is_next_judged_here_ = false;
  begin_step_limit(plan_.micro_batches(line.at));
  const Clock::time_point begin = Clock::now();
  log_.begin_step(trainer_.trace());
  const StepResult result =
      trainer_.gradients(loader_, plan_.micro_batches(line.at), is_step_long_ ? &is_interrupted_ : nullptr);
  if (result.is_abandoned) {
    console_.line(fmt::format("step {} was abandoned before its update", line.at.step + 1));
    return false;
  }
  const Verdict verdict = guard_.judge(result);
  if (!verdict.event.empty()) log_event(verdict.event, verdict.reason, line.at.step + 1, line.at);
  if (!verdict.is_accepted()) {
    reject(verdict, line.at);
    return false;
  }
  if (!verdict.event.empty()) console_.warning(fmt::format("step {}: {}", line.at.step + 1, verdict.reason));
  trainer_.update(result, inputs);
  time_limit_.end(seconds_since(begin));
  end_line(line);
  report_step(result, line);
  if (inputs.wants_stats) log_.write_params(trainer_.steps_done(), trainer_.stats());
  return true;
}

void Session::end_line(StepLine& line) {
  line.after = position();
  log_.add_phases(trainer_.trace(), line.phases);
}

bool Session::submit_step(StepLine line, const StepInputs& inputs) {
  log_.begin_step(trainer_.trace());
  trainer_.submit(loader_, plan_.micro_batches(line.at), inputs);
  end_line(line);
  submitted_.push_back(std::move(line));
  return submitted_.size() < StepResultRing::kDepth || collect();
}

bool Session::collect() {
  const StepLine line = std::move(submitted_.front());
  submitted_.erase(submitted_.begin());
  const std::optional<StepResult> result = trainer_.collect(loader_);
  if (!result) {
    // In f16 the loss scale is lowered this way, and the repeated step reports it.
    if (config_.precision.compute != DType::f16)
      console_.warning(fmt::format(
          "step {}: its losses or gradients are not finite{}; it changed nothing and is made again",
          line.at.step + 1, submitted_.empty() ? "" : " (read one step later)"));
    submitted_.clear();
    is_next_judged_here_ = true;
    return false;
  }
  const Verdict verdict = guard_.judge(*result);
  if (!verdict.event.empty()) {
    log_event(verdict.event, verdict.reason, line.at.step + 1, line.at);
    console_.warning(fmt::format("step {}: {}", line.at.step + 1, verdict.reason));
  }
  report_step(*result, line);
  return true;
}

bool Session::drain() {
  while (!submitted_.empty())
    if (!collect()) return false;
  return true;
}

// Writes a line of metrics.jsonl about the batch at position `at`.
void Session::log_event(const std::string& event, const std::string& reason, int64_t step,
                        const RunPosition& at) {
  log_.write(step,
             {{"event", event},
              {"reason", reason},
              {"sample", at.tokens / config_.model.context},
              {"samples", at.step_tokens / config_.model.context}},
             false);
}

void Session::pass_excluded_samples() {
  for (const auto& [begin, end] : state_.excluded_samples)
    if (begin <= loader_.position() && loader_.position() < end) loader_.seek(end);
}

void Session::reject(const Verdict& verdict, const RunPosition& at) {
  trainer_.discard();
  if (verdict.policy == GuardPolicy::kStop)
    fail(ErrorKind::kNumerics,
         "step {}: {}; the update was not made. Lower optimizer.lr or raise schedule.warmup_steps, or choose "
         "another guard.{}",
         at.step + 1, verdict.reason, verdict.event);
  console_.warning(fmt::format("step {}: {}; {}", at.step + 1, verdict.reason,
                               verdict.policy == GuardPolicy::kSkip ? "batch skipped" : "rolling back"));
  if (verdict.policy == GuardPolicy::kRollback) roll_back(verdict, at);
}

// Rolls back to the newest good checkpoint and excludes the current batch from then on.
void Session::roll_back(const Verdict& verdict, const RunPosition& at) {
  const TimedPhase phase(time_limit_, TimeLimit::Phase::kSaving);  // a checkpoint is verified and read
  const auto checkpoint = newest_healthy();
  if (!checkpoint)
    fail(ErrorKind::kNumerics, "{}: there is no healthy checkpoint to roll back to",
         store_.folder().string());
  auto excluded = state_.excluded_samples;
  excluded.push_back({at.tokens / config_.model.context, loader_.position()});
  std::ranges::sort(excluded);
  restore(*checkpoint);
  state_.excluded_samples = excluded;
  log_event("rollback", fmt::format("step {}: {}", at.step + 1, verdict.reason), state_.step, at);
  console_.line(fmt::format("rolled back to {}", checkpoint->path.string()));
}

// Prints the mean over all ranks.
void Session::report_bubble() {
  const Stages* stages = trainer_.stages();
  if (!stages) return;
  std::array<double, 2> times_s{stages_wait_s_, stages_s_};
  all_.sum(times_s);
  if (times_s[1] == 0) return;
  console_.line(
      fmt::format("pipeline: ranks waited for stages for {:.1f}% of the steps; (p-1)/(vm+p-1) = {:.1f}%",
                  100 * times_s[0] / times_s[1], 100 * stages->report().ideal_bubble));
}

// Returns the seconds until the end of the run or the point where it stops; nullopt if unknown.
std::optional<double> Session::seconds_left(const RunPosition& position) const {
  const RunLength& length = plan_.length();
  if (length.unit == RunUnit::kTime) return std::max(0.0, length.total - position.time_s);
  double end = 1;
  if (config_.train.stop_at > 0 && length.unit == RunUnit::kSteps)
    end = static_cast<double>(config_.train.stop_at) / length.total;
  return eta_.seconds_for(end - plan_.progress(position));
}

void Session::report_step(const StepResult& result, const StepLine& line) {
  const RunPosition& at = line.at;
  const double step_s = seconds_since(std::max(line.begin, last_report_));
  last_report_ = Clock::now();
  train_s_ += step_s;
  last_step_s_ = step_s;
  state_.tokens += result.tokens;
  const int64_t step = at.step + 1;
  folder_.record().beat(step);
  const bool counts_steps = plan_.length().unit == RunUnit::kSteps;
  StepReport report{.step = step,
                    .steps = counts_steps ? config_.train.steps : 0,
                    .progress = plan_.progress(line.after),
                    .loss = result.loss,
                    .grad_norm = result.grad_norm,
                    .lr = plan_.lr(at),
                    .step_ms = step_s * 1e3,
                    .tokens_per_s = static_cast<double>(result.tokens) / step_s,
                    .mfu = {},
                    .eta_s = {}};
  report.mfu = mfu_.of_step(trainer_.model().config().flops_per_token() * report.tokens_per_s, train_s_);
  eta_.add_step(step_s, report.progress - plan_.progress(at), seconds_since(training_start_));
  report.eta_s = seconds_left(line.after);
  const bool is_logged = step == 1 || step % config_.train.log_every == 0 || plan_.is_finished(line.after);
  console_.step(report, is_logged);
  std::vector<MetricsField> fields = {{"tokens", state_.tokens},
                                      {"loss", result.loss},
                                      {"top1", result.top1},
                                      {"lr", report.lr},
                                      {"momentum", plan_.momentum(at)},
                                      {"grad_norm", result.grad_norm},
                                      {"step_tokens", at.step_tokens},
                                      {"step_ms", report.step_ms},
                                      {"tokens_per_s", report.tokens_per_s},
                                      {"loader_wait_ms", result.wait_s * 1e3}};
  if (report.mfu) fields.emplace_back("mfu", *report.mfu);
  if (const Stages* stages = trainer_.stages()) {
    stages_wait_s_ += stages->report().wait_s;
    stages_s_ += stages->report().step_s;
    fields.emplace_back("bubble", stages->report().wait_s / stages->report().step_s);
  }
  if (config_.precision.compute == DType::f16) fields.emplace_back("loss_scale", result.loss_scale);
  if (const int64_t passed_over = trainer_.optimizer().non_finite_gradients(); passed_over > 0) {
    non_finite_gradients_ += passed_over;
    fields.emplace_back("non_finite_gradients", passed_over);
  }
  if (result.raw.tokens > 0) {
    fields.emplace_back("raw_ce_fp32", result.raw.ce);
    fields.emplace_back("raw_ce_gap", result.raw.trained - result.raw.objective);
    if (result.raw.forward_tokens > 0)
      fields.emplace_back("raw_forward_gap", result.raw.forward_trained - result.raw.forward_objective);
  }
  if (config_.head.filter > 0) fields.emplace_back("head_filtered", result.head_filtered);
  if (result.fp8.elements > 0) {
    const double elements = static_cast<double>(result.fp8.elements);
    fields.emplace_back("fp8_saturated", static_cast<double>(result.fp8.saturated) / elements);
    fields.emplace_back("fp8_underflowed", static_cast<double>(result.fp8.underflowed) / elements);
  }
  fields.insert(fields.end(), line.phases.begin(), line.phases.end());
  if (newest_ == Newest::kSaved && at.step >= last_save_step_) newest_ = Newest::kUsed;
  log_.write(step, fields, is_logged);
  if (is_logged) log_.write_fp8(step, trainer_.fp8());
  if (const auto trouble = log_.take_trouble())
    console_.warning(fmt::format("{}; its lines wait in memory", *trouble));
}

}  // namespace ingot
