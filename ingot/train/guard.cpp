#include "ingot/train/guard.h"

#include <fmt/core.h>

#include <cmath>

#include "ingot/core/error.h"
#include "ingot/train/trainer.h"

namespace ingot {

void refuse_update(int64_t step, const std::string& reason, const std::string& alternative) {
  fail(ErrorKind::kNumerics,
       "step {}: {}; the update was not made. Lower optimizer.lr or raise schedule.warmup_steps{}", step,
       reason, alternative);
}

Guard::Guard(const GuardConfig& config)
    : config_(config), losses_(config.spike_window), norms_(config.spike_window) {}

Verdict Guard::judge(const StepResult& result) {
  if (result.lowered_scale)
    return {GuardPolicy::kSkip, "overflow",
            fmt::format("the gradients overflow f16 at loss scale {}; it is {} now", result.step.scaler.scale,
                        *result.lowered_scale)};
  Verdict verdict;
  if (result.non_finite) {
    verdict = {config_.non_finite, "non_finite", result.non_finite->text()};
  } else if (const double score = losses_.score(result.loss); score > config_.spike_threshold) {
    verdict = {config_.spike, "spike",
               fmt::format("loss {:.4f} lies {:.1f} robust deviations above the {} before it", result.loss,
                           score, losses_.values().size())};
  }
  if (verdict.is_accepted()) {
    losses_.add(result.loss);
    add_norm(result.grad_norm, verdict);
    skips_ = 0;
    return verdict;
  }
  if (verdict.policy == GuardPolicy::kStop) return verdict;
  int64_t& count = verdict.policy == GuardPolicy::kRollback ? rollbacks_ : skips_;
  if (count >= config_.max_skips) {
    verdict.policy = GuardPolicy::kStop;
    verdict.reason += fmt::format(", and guard.max_skips = {} batches were left out before", count);
  }
  ++count;
  return verdict;
}

void Guard::set_norms(std::span<const double> norms, bool is_rise_reported) {
  norms_.set_values(norms);
  is_rise_reported_ = is_rise_reported;
}

// Remembers the norm, and reports a rise by the verdict if that reports nothing else.
void Guard::add_norm(double norm, Verdict& verdict) {
  norms_.add(norm);
  const double rise = norm_rise().value_or(0);
  if (config_.norm_rise == 0 || rise < std::sqrt(config_.norm_rise)) {
    is_rise_reported_ = false;
  } else if (rise >= config_.norm_rise && !is_rise_reported_ && verdict.event.empty()) {
    is_rise_reported_ = true;
    verdict.event = "norm_rise";
    verdict.reason = fmt::format(
        "the gradient norm rises: its median over the last {} steps is {:.2f} times that of the {} before "
        "them",
        config_.spike_window - config_.spike_window / 2, rise, config_.spike_window / 2);
  }
}

}  // namespace ingot
