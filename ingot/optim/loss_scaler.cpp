#include "ingot/optim/loss_scaler.h"

#include <algorithm>
#include <limits>

#include "ingot/core/error.h"

namespace ingot {
namespace {

constexpr double kFactor = 2;
constexpr double kLargest = std::numeric_limits<float>::max();

void require(bool holds, const char* key, const char* rule, double value) {
  if (!holds) fail(ErrorKind::kUsage, "precision.{} must {}, got {}", key, rule, value);
}

bool is_scale(double value) { return value > 0 && value <= kLargest; }

}  // namespace

void LossScalerConfig::validate() const {
  if (constant)
    require(is_scale(*constant), "loss_scale", "be above 0 and within f32, or dynamic", *constant);
  require(is_scale(init), "loss_scale_init", "be above 0 and within f32", init);
  require(is_scale(min), "loss_scale_min", "be above 0 and within f32", min);
  if (min > init)
    fail(ErrorKind::kUsage,
         "precision.loss_scale_min must be at most loss_scale_init = {}, got {}; the nearest valid value is "
         "{}",
         init, min, init);
  require(growth_interval >= 1, "loss_scale_interval", "be at least 1", static_cast<double>(growth_interval));
  require(hysteresis >= 1, "loss_scale_hysteresis", "be at least 1", static_cast<double>(hysteresis));
}

LossScaler::LossScaler(const LossScalerConfig& config)
    : config_(config),
      is_dynamic_(!config.constant),
      state_{
          .scale = config.constant.value_or(config.init), .good_steps = 0, .tolerated = config.hysteresis} {}

void LossScaler::step_made() {
  if (!is_dynamic_ || ++state_.good_steps < config_.growth_interval) return;
  state_.good_steps = 0;
  state_.tolerated = config_.hysteresis;
  if (state_.scale * kFactor <= kLargest) state_.scale *= kFactor;
}

bool LossScaler::overflowed() {
  if (!is_dynamic_ || state_.scale <= config_.min) return false;
  state_.good_steps = 0;
  if (--state_.tolerated <= 0) state_.scale = std::max(config_.min, state_.scale / kFactor);
  return true;
}

}  // namespace ingot
