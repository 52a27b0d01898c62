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

#include <memory>

#include "ingot/optim/rule.h"
#include "ingot/optim/rules/newton_schulz.h"
#include "ingot/optim/rules/shared_options.h"

namespace ingot {

class Muon : public MatrixRule {
 public:
  static constexpr const char* kName = "muon";
  struct Options {
    double beta2 = 0.9, weight_decay = 0.1;
    double momentum = 0.95, momentum_start = 0.85;
    int64_t momentum_warmup = 300;
    bool nesterov = true;
    NewtonSchulzKind newton_schulz = NewtonSchulzKind::kQuintic;
    DType newton_schulz_dtype = DType::bf16;
    bool normuon = false, cautious_decay = false, split_fused = true;

    static constexpr auto fields() {
      return std::tuple{
          Field{kBeta2, &Options::beta2},
          Field{kWeightDecay, &Options::weight_decay},
          Field{kMomentum, &Options::momentum},
          Field{kMomentumStart, &Options::momentum_start},
          Field{kMomentumWarmup, &Options::momentum_warmup},
          Field{kNesterov, &Options::nesterov},
          Field{{"newton_schulz", "Newton-Schulz coefficients of muon"},
                &Options::newton_schulz,
                kNewtonSchulzKinds},
          Field{{"newton_schulz_dtype", "dtype of muon's Newton-Schulz iterates"},
                &Options::newton_schulz_dtype,
                kNewtonSchulzDtypes},
          Field{{.key = "normuon", .text = "muon with NorMuon's variance reduction", .shapes_state = true},
                &Options::normuon},
          Field{{"cautious_decay", "muon decays only weights that its update shrinks"},
                &Options::cautious_decay},
          Field{{.key = "split_fused",
                 .text = "muon orthogonalises q, k, v (and gate, up) separately",
                 .shapes_state = true},
                &Options::split_fused}};
    }
  };

  explicit Muon(const Options& options) : options_(options) {}

  // Throws a kUsage error for a parameter that is not a matrix.
  std::vector<StateSpec> state(const OptimParam& param) const override;
  size_t scratch_bytes(const OptimParam& param) const override;
  void update(std::span<const ParamUpdate> updates, Arena& scratch, Stream& stream) const override;

  void move_momentum(const ParamState& p, const RuleStep& step, const Tensor& u,
                     Stream& stream) const override;
  void orthogonalise(const ParamState& p, const RuleStep& step, const Tensor& u, Arena& scratch,
                     Stream& stream) const override;
  double flops(const OptimParam& param) const override;

  // In builds with CUDA (optim/rules/cuda_muon.cu).
  static std::unique_ptr<UpdateRule> make_on_device(const Options& options);

 protected:
  Options options_;
};

}  // namespace ingot
