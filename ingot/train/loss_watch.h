// LossWatch: decides whether the loss that a run trains on is still the loss of its weights, from the tokens
// that were computed once more in f32 (RawLoss). One check that is far off ends the run, and so do several in
// a row that lie beyond the rounding of the formats in use, all to the same side: rounding errors change
// their sign, a mistake does not.
#pragma once

#include <cstdint>

#include "ingot/config/config.h"
#include "ingot/nn/loss_head.h"

namespace ingot {

// The mean difference, relative to a loss of at least one nat, that the roundings of the formats in use may
// cause over kLossWatchTokens tokens. head: of the products with the token table; forward: of the whole
// model.
struct LossBiasLimits {
  double head = 0, forward = 0;
};
inline constexpr int64_t kLossWatchTokens = 64;

// head.raw_ce_bias_limit for both if it is set, otherwise derived from the formats (docs/numerics.md).
LossBiasLimits loss_bias_limits(const RunConfig& config);

class LossWatch {
 public:
  static constexpr int kChecksInARow = 3;

  explicit LossWatch(const RunConfig& config);

  // Takes the check of a step; without checked tokens it does nothing. kNumerics error, which names the key
  // to set, if the run must not go on.
  void check(const RawLoss& raw, int64_t step);

 private:
  struct Sustained {
    int checks = 0;  // consecutive ones beyond the limit, all to the same side
    bool is_above = false;
    bool add(double gap, double limit);
  };

  double limit_;  // head.raw_ce_limit
  LossBiasLimits bias_;
  Sustained head_, forward_;
};

}  // namespace ingot
