#include "ingot/train/guard.h"

#include <fmt/core.h>

#include "ingot/core/error.h"
#include "ingot/train/trainer.h"

namespace ingot {

void refuse_update(int64_t step, const std::string& reason, const std::string& alternative) {
  fail(ErrorKind::kNumerics,
       "step {}: {}; the update was not made. Lower optimizer.lr or raise schedule.warmup_steps{}", step,
       reason, alternative);
}

Guard::Guard(const GuardConfig& config) : config_(config), losses_(config.spike_window) {}

Verdict Guard::judge(const StepResult& result) {
  if (result.lowered_scale)
    return {GuardPolicy::kSkip, "overflow",
            fmt::format("the gradients overflow f16 at loss scale {}; it is {} now", result.loss_scale,
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

}  // namespace ingot
