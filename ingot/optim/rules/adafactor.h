// Adafactor (Shazeer & Stern 2018, arXiv:1804.04235) with the rule of torch.optim.Adafactor: the second
// moment of a matrix (R, C) is stored as the means of its rows and columns. At step t, with b = t^-0.8 and
// g' = g * grad_scale:
//   w = w * (1 - lr * weight_decay)
//   row = lerp(row, mean over columns of g'^2, b);  col = lerp(col, mean over rows of g'^2, b)
//   V = row colᵀ / max(mean(row), eps);  for a vector V is the state: V = lerp(V, g'^2, b)
//   U = g' / sqrt(max(V, eps^2))
//   w = w - alpha / max(1, RMS(U) / update_clip) * U
//   alpha = max(1e-3, RMS(w before the step)) * min(lr, 1 / sqrt(t)), or lr without relative_step
// Ranks that hold shards of a matrix add up their sums over rows, columns and all elements, and each rank
// holds all of row and col. State: row (R), col (C) of a matrix; v (n) of a vector.
#pragma once

#include <memory>

#include "ingot/optim/rule.h"
#include "ingot/optim/rules/shared_options.h"

namespace ingot {

class Adafactor : public UpdateRule {
 public:
  static constexpr const char* kName = "adafactor";
  struct Options {
    double eps = 0x1p-23, weight_decay = 0.1;
    bool relative_step = true;
    double update_clip = 1;

    static constexpr auto fields() {
      return std::tuple{Field{kEps, &Options::eps}, Field{kWeightDecay, &Options::weight_decay},
                        Field{{"relative_step", "adafactor scales its steps by the size of the weights"},
                              &Options::relative_step},
                        Field{{"update_clip", "adafactor clips the root mean square of an update to this",
                               Limit::kPositive},
                              &Options::update_clip}};
    }
  };

  static constexpr double kDecayExponent = -0.8, kSmallestScale = 1e-3;

  explicit Adafactor(const Options& options) : options_(options) {}

  std::vector<StateSpec> state(const OptimParam& param) const override;
  RuleNeeds needs(const OptimParam& param) const override;
  size_t scratch_bytes(const OptimParam& param) const override;
  // Called for shards. The first reduction sums g'^2 by row (R) and by column (C), and w^2; the second
  // updates row and col, and sums U^2.
  void reduce(const ParamUpdate& update, int order, Arena& scratch, Stream& stream) const override;
  void update(std::span<const ParamUpdate> updates, Arena& scratch, Stream& stream) const override;

  // In builds with CUDA (optim/rules/cuda_adafactor.cu).
  static std::unique_ptr<UpdateRule> make_on_device(const Options& options);

 protected:
  Options options_;

 private:
  // Numbers that the update of every element uses.
  struct Factors {
    double rate;     // alpha / max(1, RMS(U) / update_clip)
    double divisor;  // max(mean(row), eps)
  };
  // Updates the state if the parameter is whole.
  Factors prepare(const ParamUpdate& update, Arena& scratch) const;
  double divisor(const ParamState& p) const;
  float smallest() const { return static_cast<float>(options_.eps * options_.eps); }
  // The rate, from the sums of w^2 and U^2 over the whole parameter.
  double rate(const OptimParam& param, const RuleStep& step, double weights, double updates) const;
};

}  // namespace ingot
