// Schedules: learning rate, momentum and batch size of a run, each one function of where the run stands.
//
//   lr(p) = min(warmup(p), phases(p)) as a fraction of the peak,
// read before the step's update. Linear warm-up over w steps at step s, by one of the rules in use:
//   s / w (Hugging Face, llmq: the first step has rate 0), (s + 1) / w (llm.c), (s + 1) / (w + 1) (nanoGPT);
// over w tokens: the same with s the tokens taken before the step and the step's own tokens in place of 1.
// The phases are those of optim/phases.h:
//   constant   1
//   cosine     1 while warming up, then cosine to the floor
//   linear     1 while warming up, then linear to the floor
//   wsd        1, then cooldown_curve to the floor over the last part (Hu et al. 2024, arXiv:2404.06395)
//   phases     as written
// A run that is made longer keeps every value from before its last cool-down's begin.
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
  int64_t warmup_tokens = 0;  // in place of steps
  WarmupRule warmup_rule = WarmupRule::kBetween;
  double floor = 0.1;          // the last value, as a fraction of the peak
  int64_t decay_steps = 0;     // the step at which the floor is reached; 0: at the end of the run
  double cooldown_frac = 0.2;  // wsd: part of the run that is its cool-down
  int64_t cooldown_steps = 0;  // wsd: the same in steps; 0: by cooldown_frac
  Curve cooldown_curve = Curve::kLinear;
  std::vector<Phase> phases;    // kind phases: multipliers of the peak, the first begins at 1
  double momentum_from = 0.85;  // first value of `momentum`
  std::vector<Phase> momentum;  // values of the momentum; empty: the optimizer's own, throughout
  void validate() const;
};

// How long a run is, and in what: the unit that its schedule follows.
enum class RunUnit { kSteps, kTokens, kTime };
struct RunLength {
  RunUnit unit = RunUnit::kSteps;
  double total = 0;  // steps, tokens or seconds
};

// Where a run stands before a step.
struct RunPosition {
  int64_t step = 0;         // updates made
  int64_t tokens = 0;       // taken from the stream
  double time_s = 0;        // spent
  int64_t step_tokens = 1;  // of the step to come
};

class Schedule {
 public:
  // kUsage error, naming the key, for phases that do not fit the run.
  Schedule(const ScheduleConfig& config, const RunLength& length, const BatchRamp& ramp);

  // Multiplier of the peak learning rate; in [0, 1] for all kinds but "phases", whose values are as written.
  double lr(const RunPosition& position) const;
  // The momentum; nullopt where the optimizer's own holds.
  std::optional<double> momentum(const RunPosition& position) const;

 private:
  double warmup(const RunPosition& position) const;
  double unit_position(const RunPosition& position) const;

  WarmupRule rule_;
  int64_t warmup_steps_, warmup_tokens_;
  RunUnit unit_;
  PhasedCurve lr_;
  std::optional<PhasedCurve> momentum_;
};

}  // namespace ingot
