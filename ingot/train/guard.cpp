#include "ingot/train/guard.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "ingot/core/error.h"
#include "ingot/train/trainer.h"

namespace ingot {

void refuse_update(int64_t step, const std::string& reason, const std::string& alternative) {
  fail(ErrorKind::kNumerics,
       "step {}: {}; the update was not made. Lower optimizer.lr or raise schedule.warmup_steps{}", step,
       reason, alternative);
}

namespace {

// Returns the upper median.
double median(std::vector<double> values) {
  const auto middle = values.begin() + std::ssize(values) / 2;
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace

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

std::optional<double> Guard::norm_rise() const {
  if (std::ssize(norms_) < config_.spike_window) return std::nullopt;
  const auto middle = norms_.begin() + std::ssize(norms_) / 2;
  const double older = median({norms_.begin(), middle});
  if (older == 0) return std::nullopt;
  return median({middle, norms_.end()}) / older;
}

void Guard::set_norms(std::span<const double> norms, bool is_rise_reported) {
  const size_t kept = std::min(norms.size(), static_cast<size_t>(config_.spike_window));
  norms_.assign(norms.end() - static_cast<std::ptrdiff_t>(kept), norms.end());
  is_rise_reported_ = is_rise_reported;
}

// Remembers the norm, and reports a rise by the verdict if that reports nothing else.
void Guard::add_norm(double norm, Verdict& verdict) {
  if (!std::isfinite(norm)) return;
  if (std::ssize(norms_) == config_.spike_window) norms_.erase(norms_.begin());
  norms_.push_back(norm);
  const double rise = norm_rise().value_or(0);
  if (config_.norm_rise == 0 || rise < std::sqrt(config_.norm_rise)) {
    is_rise_reported_ = false;
  } else if (rise >= config_.norm_rise && !is_rise_reported_ && verdict.event.empty()) {
    is_rise_reported_ = true;
    verdict.event = "norm_rise";
    verdict.reason = fmt::format(
        "the gradient norm rises: its median over the last {} steps is {:.2f} times that of the {} before "
        "them",
        norms_.size() - norms_.size() / 2, rise, norms_.size() / 2);
  }
}

}  // namespace ingot
