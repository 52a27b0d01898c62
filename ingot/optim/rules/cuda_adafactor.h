// Adafactor on a CUDA device (optim/rules/adafactor.h). The host does not wait for the device. Defined in
// builds with CUDA.
#pragma once

#include "ingot/core/arena.h"
#include "ingot/optim/rule.h"

namespace ingot::cuda {

// Makes one update of a parameter, as on the CPU. totals are those of update_elementwise; scratch has
// adafactor_scratch_bytes.
void update_adafactor(const ParamState& p, const RuleParams& params, const RuleStep& step,
                      const Tensor& totals, Arena& scratch, Stream& stream);
size_t adafactor_scratch_bytes(const OptimParam& param);

}  // namespace ingot::cuda
