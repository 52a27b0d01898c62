// The logit caps on CPU vector registers. Internal to the loss ops.
#pragma once

#include <utility>

#include "ingot/ops/loss/logit_cap_rules.h"
#include "ingot/ops/simd/vec_math.h"

namespace ingot {

using Capped = CapValue<VecMath>;

// Calls f with the cap that the config selects.
template <typename F>
void with_cap(const CrossEntropyConfig& config, F&& f) {
  with_cap_rule<VecMath>(config, std::forward<F>(f));
}

}  // namespace ingot
