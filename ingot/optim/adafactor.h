// Adafactor (Shazeer & Stern 2018, arXiv:1804.04235), the rule of torch.optim.Adafactor: the second moment of
// a matrix (R, C) is kept as the means of its rows and columns. At step t, with b = t^-0.8, g' = g *
// grad_scale:
//   w = w * (1 - lr * weight_decay)
//   row = lerp(row, mean over columns of g'^2, b);  col = lerp(col, mean over rows of g'^2, b)
//   V = row colᵀ / max(mean(row), eps);  a vector keeps V = lerp(V, g'^2, b) itself
//   U = g' / sqrt(max(V, eps^2))
//   w = w - alpha / max(1, RMS(U) / update_clip) * U
//   alpha = max(1e-3, RMS(w before the step)) * min(lr, 1 / sqrt(t)), or lr without relative_step
// State: row (R), col (C) of a matrix; v (n) of a vector.
#pragma once

#include "ingot/optim/rule.h"

namespace ingot {

class Adafactor final : public UpdateRule {
 public:
  explicit Adafactor(const RuleParams& params) : params_(params) {}

  std::vector<StateSpec> state(const OptimParam& param) const override;
  bool is_whole() const override { return true; }
  size_t scratch_bytes(const OptimParam& param) const override;
  // Moves the state on; factor is alpha / max(1, RMS(U) / update_clip), divisor max(mean(row), eps).
  Prepared prepare(const ParamState& p, const RuleStep& step, Arena& scratch, Stream& stream) const override;
  RangeTotals update(const ParamState& p, Range range, const RuleStep& step,
                     const Prepared& prepared) const override;

 private:
  RuleParams params_;
};

}  // namespace ingot
