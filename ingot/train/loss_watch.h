// LossWatch verifies that the loss that a run trains on is still the loss of its weights, using the
// tokens whose loss was computed again in f32 (RawLoss). It ends the run after one check that is far off,
// or after several in a row that exceed the rounding of the formats in use to the same side: rounding
// errors change their sign, a mistake does not.
#pragma once

#include <cstdint>

#include "ingot/config/config.h"
#include "ingot/nn/loss_head.h"

namespace ingot {

// The largest mean difference over kLossWatchTokens tokens, relative to a loss of at least one nat, that
// rounding in the formats in use can explain. head: in the products with the token table; forward: in the
// whole model.
struct LossBiasLimits {
  double head = 0, forward = 0;
};
inline constexpr int64_t kLossWatchTokens = 64;

// Returns head.raw_ce_bias_limit for both if it is set; otherwise derives them from the formats
// (docs/numerics.md).
LossBiasLimits loss_bias_limits(const RunConfig& config);

class LossWatch {
 public:
  static constexpr int kChecksInARow = 3;

  explicit LossWatch(const RunConfig& config);

  // Checks the step's recomputed tokens; does nothing if there are none. Throws a kNumerics error that
  // names the key to set if the run must end.
  void check(const RawLoss& raw, int64_t step);

 private:
  struct Sustained {
    int checks = 0;  // consecutive checks beyond the limit, all to the same side
    bool is_above = false;
    bool add(double gap, double limit);
  };

  double limit_;  // head.raw_ce_limit
  LossBiasLimits bias_;
  Sustained head_, forward_;
};

}  // namespace ingot
