// Adafactor on a CUDA device (optim/rules/adafactor.h); nothing waits for the device. Defined in builds with CUDA.
#pragma once

#include "ingot/core/arena.h"
#include "ingot/optim/rule.h"

namespace ingot::cuda {

// One update of a parameter, as on the CPU. totals as update_elementwise's; scratch has
// adafactor_scratch_bytes.
void update_adafactor(const ParamState& p, const RuleParams& params, const RuleStep& step,
                      const Tensor& totals, Arena& scratch, Stream& stream);
size_t adafactor_scratch_bytes(const OptimParam& param);

}  // namespace ingot::cuda
