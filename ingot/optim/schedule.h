// Schedules of learning rate, momentum, attention's window and batch size: each is a function of the position
// in the run.
//
//   lr(p) = min(warmup(p), phases(p)) as a fraction of the peak
// The position is that before the step's update. Linear warm-up over w steps has, at step s, one
// of these values:
//   s / w (Hugging Face, llmq: the first step has rate 0), (s + 1) / w (llm.c), (s + 1) / (w + 1) (nanoGPT).
// Over w tokens, s counts the tokens taken before the step, and the step's own tokens replace the 1. The
// phases are those of optim/phases.h:
//   constant   1
//   cosine     1 while warming up, then cosine to the floor
//   linear     1 while warming up, then linear to the floor
//   wsd        1, then cooldown_curve to the floor at the end of the run (Hu et al. 2024, arXiv:2404.06395)
//   phases     as configured
// If a run is extended, all values before the start of its last cool-down stay the same.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "ingot/optim/batch_ramp.h"
#include "ingot/optim/phases.h"

namespace ingot {

enum class ScheduleKind { kConstant, kCosine, kLinear, kWsd, kPhases };
enum class WarmupRule { kFromZero, kFromOne, kBetween };  // s / w, (s + 1) / w, (s + 1) / (w + 1)

struct ScheduleConfig {
  ScheduleKind kind = ScheduleKind::kCosine;
  int64_t warmup_steps = 0;
  int64_t warmup_tokens = 0;  // replaces warmup_steps
  WarmupRule warmup_rule = WarmupRule::kBetween;
  double floor = 0.1;          // the last value, as a fraction of the peak
  int64_t decay_steps = 0;     // step at which the floor is reached; 0: the end of the run
  int64_t decay_tokens = 0;    // replaces decay_steps
  double cooldown_frac = 0.2;  // wsd: fraction of the run that is the cool-down
  int64_t cooldown_steps = 0;  // wsd: length of the cool-down in steps; 0: by cooldown_frac
  Curve cooldown_curve = Curve::kLinear;
  double phases_from = 1;       // first value of `phases`
  std::vector<Phase> phases;    // for kPhases: multipliers of the peak
  double momentum_from = 0.85;  // first value of `momentum`
  std::vector<Phase> momentum;  // values of the momentum; empty: the optimizer's own throughout
  double window_from = 0;       // first value of `window`
  std::vector<Phase> window;    // values of attention's window, in tokens; empty: the model's own throughout
  int64_t window_multiple = 128;  // a window is rounded up to a multiple of this, at least one
  void validate() const;
};

// The length of a run, and the unit that its schedule follows.
enum class RunUnit { kSteps, kTokens, kTime };
struct RunLength {
  RunUnit unit = RunUnit::kSteps;
  double total = 0;  // steps, tokens or seconds
};

// The position in a run before a step.
struct RunPosition {
  int64_t step = 0;         // updates made
  int64_t tokens = 0;       // taken from the stream
  double time_s = 0;        // elapsed
  int64_t step_tokens = 1;  // tokens of the coming step
};

class Schedule {
 public:
  // Throws a kUsage error that names the key if the phases do not fit the run.
  Schedule(const ScheduleConfig& config, const RunLength& length, const BatchRamp& ramp);

  // Multiplier of the peak learning rate. It lies in [0, 1] for all kinds but kPhases, whose values
  // are as configured.
  double lr(const RunPosition& position) const;
  // The momentum, or nullopt if the optimizer's own applies.
  std::optional<double> momentum(const RunPosition& position) const;
  // The window in tokens, or nullopt if the model's own applies.
  std::optional<int64_t> window(const RunPosition& position) const;

 private:
  double warmup(const RunPosition& position) const;
  double unit_position(const RunPosition& position) const;

  WarmupRule rule_;
  int64_t warmup_steps_, warmup_tokens_;
  RunUnit unit_;
  PhasedCurve lr_;
  std::optional<PhasedCurve> momentum_, window_;
  int64_t window_multiple_;
};

}  // namespace ingot
