// Loss scaling (Micikevicius et al. 2018, arXiv:1710.03740): gradients in f16 below 2^-24 vanish, so the loss
// is multiplied before backward and the update divides by the same number. The dynamic scale follows the
// gradients:
//
//   overflow   good = 0, tolerated -= 1; with none tolerated any more scale = max(min, scale / 2)
//   good step  good += 1; at the growth interval scale *= 2 (as long as f32 holds it), good = 0,
//              tolerated = hysteresis
//
// With hysteresis 1 the rule of torch.amp.GradScaler; with more that of Megatron-LM, where the first
// overflows after the scale grew pass without lowering it. A step that overflows is not made. The factors are
// powers of two, so that a scale that begins as one never rounds.
#pragma once

#include <cstdint>
#include <optional>

namespace ingot {

struct LossScalerConfig {
  std::optional<double> constant = {};  // the scale for good; absent: dynamic
  double init = 65536;
  int64_t growth_interval = 2000;  // good steps
  int64_t hysteresis = 1;          // overflows since the scale last grew until it falls
  double min = 1;

  // Throws a kUsage error that names the key, the rule and the value.
  void validate() const;
};

class LossScaler {
 public:
  LossScaler() = default;  // scale 1 for good
  explicit LossScaler(const LossScalerConfig& config);

  double scale() const { return state_.scale; }
  bool is_dynamic() const { return is_dynamic_; }

  // A step was made with gradients of this scale.
  void step_made();
  // Gradients of this scale were not finite. False: the scale cannot follow, since it is constant or has come
  // down to its minimum; nothing has changed then.
  bool overflowed();

  struct State {
    double scale = 1;
    int64_t good_steps = 0;
    int64_t tolerated = 1;
  };
  const State& state() const { return state_; }
  void set_state(const State& state) { state_ = state; }

 private:
  LossScalerConfig config_;
  bool is_dynamic_ = false;
  State state_;
};

}  // namespace ingot
