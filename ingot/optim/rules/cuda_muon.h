// Muon on a CUDA device (optim/rules/muon.h): its products are ops/matmul's, the rest are the kernels here. Nothing
// waits for the device. Defined in builds with CUDA.
#pragma once

#include "ingot/core/arena.h"
#include "ingot/optim/rule.h"

namespace ingot::cuda {

// to = factor * from, element by element; each f32 or bf16, and they may be one.
void scale_into(const Tensor& to, const Tensor& from, float factor, Stream& stream);

// What a matrix is divided by before the iteration: of_norm * |x| + eps.
struct Normaliser {
  float of_norm, eps;
};

// to (f32 or bf16, x's shape; may be x) = x / (of_norm * |x|_F + eps). parts: scratch (kSquareParts + 1) f32.
void normalise(const Tensor& to, const Tensor& x, const Normaliser& by, const Tensor& parts, Stream& stream);

// b = of_a * a + of_squared * squared; a and b f32 or bf16, both alike, squared f32; b may be squared.
void combine(const Tensor& b, const Tensor& a, const Tensor& squared, float of_a, float of_squared,
             Stream& stream);

// One update of a matrix parameter by Muon, as on the CPU. totals as update_elementwise's; scratch has
// muon_scratch_bytes.
void update_muon(const ParamState& p, const RuleParams& params, const RuleStep& step, const Tensor& totals,
                 Arena& scratch, Stream& stream);
size_t muon_scratch_bytes(const OptimParam& param, const RuleParams& params);

}  // namespace ingot::cuda
