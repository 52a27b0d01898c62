// Muon (Jordan et al. 2024, "Muon: an optimizer for hidden layers in neural networks"): the momentum's
// matrix, orthogonalised. For w (R, C), g' = g * grad_scale, mu = the step's momentum:
//   m = lerp(m, g', 1 - mu);  U = lerp(g', m, mu) with Nesterov, else m
//   O = newton_schulz(U)                                                       (optim/newton_schulz.h)
//   w = w * (1 - lr * weight_decay) - lr * sqrt(max(1, R / C)) * O
// The EMA form of the momentum differs from mu * m + g' by a factor that the normalisation removes. mu rises
// linearly from momentum_start over the first momentum_warmup steps. A zero U gives a zero update.
//
// normuon (Li et al. 2025, NorMuon, arXiv:2510.05491): the rows of O (its columns, where R < C) are divided
// by the root of an EMA (beta2) of their mean squares, and the whole is scaled back to the norm that O had.
// cautious_decay (Chen et al. 2025, arXiv:2510.12402): w decays only where O and w have one sign, so that
// both move it the same way. split_fused: matrices that are stored as one (q, k and v; gate and up) are
// orthogonalised one by one, which is what the rule is about: each is a linear map of its own, and in one
// matrix the largest of them would set the scale of the others. It also decides R / C.
//
// State: momentum (n); with normuon second, one number per row or column. 4 bytes per parameter.
#pragma once

#include "ingot/optim/rule.h"

namespace ingot {

class Muon final : public UpdateRule {
 public:
  explicit Muon(const RuleParams& params) : params_(params) {}

  // kUsage error for a parameter that is no matrix.
  std::vector<StateSpec> state(const OptimParam& param) const override;
  bool is_whole() const override { return true; }
  size_t scratch_bytes(const OptimParam& param) const override;
  // Moves the momentum on; direction is O.
  Prepared prepare(const ParamState& p, const RuleStep& step, Arena& scratch, Stream& stream) const override;
  RangeTotals update(const ParamState& p, Range range, const RuleStep& step,
                     const Prepared& prepared) const override;

 private:
  RuleParams params_;
};

}  // namespace ingot
