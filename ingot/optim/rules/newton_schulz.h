// Approximates the nearest semi-orthogonal matrix by five matrix iterations: they move all singular values
// of X towards 1 and keep its singular vectors.
//   X = X / (c |X|_F + eps);  five times: A = X Xᵀ, B = b A + c A², X = a X + B X
// (With more rows than columns it uses XᵀX on the right instead, which is the smaller product.)
//
// quintic uses (a, b, c) = (3.4445, -4.7750, 2.0315) each time (Jordan et al. 2024, the Muon optimizer);
// singular values above 0.002 of |X|_F end between 0.68 and 1.21. polar_express uses another triple each
// time (Amsel et al. 2025, arXiv:2505.16932); singular values above 0.001 of |X|_F end between 0.84 and
// 1.15. It takes |X|_F 2 % larger, since these coefficients tolerate no singular value above 1.
#pragma once

#include <array>
#include <span>

#include "ingot/core/arena.h"
#include "ingot/core/stream.h"
#include "ingot/core/tensor.h"
#include "ingot/optim/rule_options.h"

namespace ingot {

// The coefficients of the iteration.
enum class NewtonSchulzKind { kQuintic, kPolarExpress };

// The values that a configuration can choose for the coefficients and for the dtype of the iterates.
inline constexpr std::array<ValueName<NewtonSchulzKind>, 2> kNewtonSchulzKinds{
    {{"quintic", NewtonSchulzKind::kQuintic}, {"polar_express", NewtonSchulzKind::kPolarExpress}}};
inline constexpr std::array<ValueName<DType>, 2> kNewtonSchulzDtypes{
    {{"bf16", DType::bf16}, {"f32", DType::f32}}};

struct NewtonSchulzStep {
  double a, b, c;
};

inline constexpr int kNewtonSchulzSteps = 5;

std::span<const NewtonSchulzStep, kNewtonSchulzSteps> newton_schulz_steps(NewtonSchulzKind kind);

// Replaces x (R, C) f32, contiguous, by the result; all zeros stay zeros. iteration: dtype of X, A and B
// between the products, bf16 or f32. Products accumulate in f32, and the result is not rounded to bf16.
void newton_schulz(const Tensor& x, NewtonSchulzKind kind, DType iteration, Arena& scratch, Stream& stream);
size_t newton_schulz_scratch_bytes(int64_t R, int64_t C, DType iteration, Device device = Device::kCpu);

// Multiplications and additions of all its products: 5 * (4 S² L + 2 S³), where S is the smaller and L the
// larger of R and C.
double newton_schulz_flops(int64_t R, int64_t C);

}  // namespace ingot
