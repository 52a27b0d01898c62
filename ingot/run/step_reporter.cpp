#include "ingot/run/step_reporter.h"

#include <algorithm>
#include <array>

#include "ingot/core/machine.h"

namespace ingot {

StepReporter::StepReporter(const RunSetup& setup, const Trainer& trainer, const Guard& guard,
                           const Progress& progress, RunLog& log)
    : setup_(setup),
      trainer_(trainer),
      guard_(guard),
      progress_(progress),
      log_(log),
      flops_per_token_(trainer.layout().model->config().flops_per_token()),
      mfu_(setup.config.precision.compute, setup.config.train.device, setup.config.precision.allows_tf32,
           setup.world, setup.folder.is_lead() ? setup.folder.record().peak_before(setup.world.size()) : 0) {}

void StepReporter::report_arenas() {
  std::vector<MetricsField> fields;
  for (const Trainer::ArenaUse& use : trainer_.arenas()) {
    std::string key = "bytes_" + use.name;
    std::ranges::replace(key, ' ', '_');
    fields.emplace_back(key, static_cast<int64_t>(use.bytes));
  }
  log_.write(trainer_.state().steps_done, fields, true);
}

// Returns the seconds until the end of the run or the point where it stops; nullopt if unknown.
std::optional<double> StepReporter::seconds_left(const RunPosition& position) const {
  const RunLength& length = setup_.plan.length();
  if (length.unit == RunUnit::kTime) return std::max(0.0, length.total - position.time_s);
  double end = 1;
  if (setup_.config.train.stop_at > 0 && length.unit == RunUnit::kSteps)
    end = static_cast<double>(setup_.config.train.stop_at) / length.total;
  return eta_.seconds_for(end - setup_.plan.progress(position));
}

void StepReporter::report(const StepResult& result, const StepLine& line) {
  const RunPosition& at = line.at;
  const RunPlan& plan = setup_.plan;
  last_step_s_ = seconds_since(std::max(line.begin, last_report_));
  last_report_ = RunClock::now();
  train_s_ += last_step_s_;
  const int64_t step = at.step + 1;
  StepReport report{.step = step,
                    .steps = plan.length().unit == RunUnit::kSteps ? setup_.config.train.steps : 0,
                    .progress = plan.progress(line.after),
                    .loss = result.loss,
                    .grad_norm = result.grad_norm,
                    .lr = plan.lr(at),
                    .step_ms = last_step_s_ * 1e3,
                    .tokens_per_s = static_cast<double>(at.step_tokens) / last_step_s_,
                    .mfu = {},
                    .eta_s = {}};
  report.mfu = mfu_.of_step(flops_per_token_ * report.tokens_per_s, train_s_);
  eta_.add_step(last_step_s_, report.progress - plan.progress(at), progress_.training_s());
  report.eta_s = seconds_left(line.after);
  const bool is_logged =
      step == 1 || step % setup_.config.train.log_every == 0 || plan.is_finished(line.after);
  setup_.console.step(report, is_logged);
  std::vector<MetricsField> numbers = fields(result, line, report);
  if (is_logged) numbers.emplace_back("rss_bytes", static_cast<int64_t>(rss_bytes()));
  log_.write(step, numbers, is_logged);
  if (is_logged) log_.write_fp8(step, trainer_.state().fp8);
  if (const auto trouble = log_.take_error())
    setup_.console.warning(fmt::format("{}; its lines wait in memory", *trouble));
}

std::vector<MetricsField> StepReporter::fields(const StepResult& result, const StepLine& line,
                                               const StepReport& report) {
  const RunPosition& at = line.at;
  std::vector<MetricsField> fields = {{"tokens", progress_.tokens},
                                      {"loss", result.loss},
                                      {"top1", result.top1},
                                      {"lr", report.lr},
                                      {"momentum", setup_.plan.momentum(at)},
                                      {"grad_norm", result.grad_norm},
                                      {"step_tokens", at.step_tokens},
                                      {"step_ms", report.step_ms},
                                      {"tokens_per_s", report.tokens_per_s},
                                      {"loader_wait_ms", result.step.wait_s * 1e3}};
  if (result.micro_squares > 0) {
    const int64_t own = trainer_.layout().data_shard.batch_size * setup_.config.model.context;
    noise_.add(result.micro_squares, static_cast<double>(own), result.grad_norm * result.grad_norm,
               static_cast<double>(at.step_tokens));
    if (const std::optional<double> noise = noise_.tokens()) fields.emplace_back("noise_scale", *noise);
  }
  if (setup_.data.train.references()) {
    fields.emplace_back("pairs", result.tokens);
    fields.emplace_back("rewards/chosen", result.rewards[0]);
    fields.emplace_back("rewards/rejected", result.rewards[1]);
    fields.emplace_back("rewards/margins", result.rewards[0] - result.rewards[1]);
    fields.emplace_back("rewards/accuracies", result.top1);
  } else if (setup_.data.train.is_masked()) {
    fields.emplace_back("targets", result.tokens);
  }
  if (const std::optional<double> rise = guard_.norm_rise()) fields.emplace_back("norm_rise", *rise);
  if (report.mfu) fields.emplace_back("mfu", *report.mfu);
  if (const auto& pipeline = trainer_.layout().executor->pipeline()) {
    stages_wait_s_ += pipeline->wait_s;
    stages_s_ += pipeline->step_s;
    fields.emplace_back("bubble", pipeline->wait_s / pipeline->step_s);
  }
  if (setup_.config.precision.compute == DType::f16)
    fields.emplace_back("loss_scale", result.step.scaler.scale);
  if (const int64_t skipped = trainer_.state().optimizer.non_finite_gradients(); skipped > 0) {
    non_finite_gradients_ += skipped;
    fields.emplace_back("non_finite_gradients", skipped);
  }
  if (result.raw.tokens > 0) {
    fields.emplace_back("raw_ce_fp32", result.raw.ce);
    fields.emplace_back("raw_ce_gap", result.raw.trained - result.raw.objective);
    if (result.raw.forward_tokens > 0)
      fields.emplace_back("raw_forward_gap", result.raw.forward_trained - result.raw.forward_objective);
  }
  if (setup_.config.head.filter > 0) fields.emplace_back("head_filtered", result.head_filtered);
  if (result.fp8.elements > 0) {
    const double elements = static_cast<double>(result.fp8.elements);
    fields.emplace_back("fp8_saturated", static_cast<double>(result.fp8.saturated) / elements);
    fields.emplace_back("fp8_underflowed", static_cast<double>(result.fp8.underflowed) / elements);
  }
  fields.insert(fields.end(), line.phases.begin(), line.phases.end());
  return fields;
}

void StepReporter::report_bubble() {
  const auto& pipeline = trainer_.layout().executor->pipeline();
  if (!pipeline) return;
  std::array<double, 2> times_s{stages_wait_s_, stages_s_};
  setup_.world.sum(times_s);
  if (times_s[1] == 0) return;
  setup_.console.line(
      fmt::format("pipeline: ranks waited for stages for {:.1f}% of the steps; (p-1)/(vm+p-1) = {:.1f}%",
                  100 * times_s[0] / times_s[1], 100 * pipeline->ideal_bubble));
}

void StepReporter::fill(RunSummary& summary) const {
  summary.train_s = train_s_;
  summary.non_finite_gradients = non_finite_gradients_;
  summary.product_peak_gflops = mfu_.peak_gflops();
  summary.ranks = setup_.world.size();
}

}  // namespace ingot
