// Muon (Jordan et al. 2024, "Muon: an optimizer for hidden layers in neural networks") moves a matrix
// along its orthogonalised momentum. For w (R, C), g' = g * grad_scale, mu = the step's momentum:
//   m = lerp(m, g', 1 - mu);  U = lerp(g', m, mu) with Nesterov, else m
//   O = sqrt(max(1, R / C)) * newton_schulz(U)                                 (optim/rules/newton_schulz.h)
//   w = w * (1 - lr * weight_decay) - lr * O
// The EMA form of the momentum differs from mu * m + g' by a factor that the normalisation removes. mu rises
// linearly from momentum_start over the first momentum_warmup steps. If U is zero, the update is zero.
//
// normuon (Li et al. 2025, NorMuon, arXiv:2510.05491): the rows of O (its columns if R < C) are divided by
// the root of an EMA (beta2) of their mean squares, and the result is scaled back to the norm of O.
// cautious_decay (Chen et al. 2025, arXiv:2510.12402): w decays only where O and w have the same sign, so
// that both move it in the same direction. split_fused: matrices that are stored as one (q, k and v; gate
// and up) are orthogonalised one by one. The rule is meant for single linear maps; in a fused matrix the
// largest of them would set the scale of the others. The flag also determines R / C.
//
// State: momentum (n); with normuon also second, one number per row or column. 4 bytes per parameter.
#pragma once

#include "ingot/optim/rule.h"

namespace ingot {

class Muon final : public UpdateRule {
 public:
  explicit Muon(const RuleParams& params) : params_(params) {}

  // Throws a kUsage error for a parameter that is not a matrix.
  std::vector<StateSpec> state(const OptimParam& param) const override;
  RuleNeeds needs(const OptimParam& param) const override;  // scratch_bytes is for orthogonalise
  RangeTotals update(const ParamState& p, Range range, const RuleStep& step,
                     const Prepared& prepared) const override;

  // Updates the momentum and sets u (n) f32 = U, for a shard or the whole parameter.
  void move_momentum(const ParamState& p, const RuleStep& step, const Tensor& u) const;
  // Turns u (R, C) f32, the whole U, into O. second is the state of that name, empty without normuon.
  void orthogonalise(const OptimParam& param, const Tensor& u, const Tensor& second, Arena& scratch,
                     Stream& stream) const;
  // Number of multiplications and additions of orthogonalise.
  double flops(const OptimParam& param) const;

 private:
  RuleParams params_;
};

}  // namespace ingot
