// Loss scaling (Micikevicius et al. 2018, arXiv:1710.03740): gradients below 2^-24 vanish in f16, so
// the loss is multiplied by a scale before backward and the update divides by it. A dynamic scale
// follows the gradients:
//
//   overflow   good = 0, tolerated -= 1; if tolerated <= 0, scale = max(min, scale / 2)
//   good step  good += 1; at the growth interval scale *= 2 (if f32 can hold it), good = 0,
//              tolerated = hysteresis
//
// With hysteresis 1 this is the rule of torch.amp.GradScaler. With more it is that of Megatron-LM, where
// the first overflows after the scale grew do not lower it. A step that overflows is skipped. The factors
// are powers of two, so a scale that starts as one is never rounded.
#pragma once

#include <cstdint>
#include <optional>

namespace ingot {

struct LossScalerConfig {
  std::optional<double> constant = {};  // a fixed scale; nullopt: dynamic
  double init = 65536;
  int64_t growth_interval = 2000;  // in good steps
  int64_t hysteresis = 1;          // number of overflows since the scale last grew that make it fall
  double min = 1;

  // Throws a kUsage error that names the key, the rule and the value.
  void validate() const;
};

class LossScaler {
 public:
  LossScaler() = default;  // fixed scale 1
  explicit LossScaler(const LossScalerConfig& config);

  double scale() const { return state_.scale; }
  bool is_dynamic() const { return is_dynamic_; }

  // Records a step that was made with gradients of this scale.
  void step_made();
  // Records that gradients of this scale were not finite. Returns false, and changes nothing, if the scale
  // cannot be lowered because it is constant or at its minimum.
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
