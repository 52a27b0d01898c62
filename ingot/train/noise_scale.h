// The gradient noise scale (McCandlish et al. 2018, arXiv:1812.06162, appendix A.1): the number of tokens at
// which the noise of a step's gradient is as large as the gradient, tr(Sigma) / |G|^2. From the squared norms
// of the mean gradients of b and of B tokens,
//   |G|^2 = (B |g_B|^2 - b |g_b|^2) / (B - b),  tr(Sigma) = (|g_b|^2 - |g_B|^2) / (1/b - 1/B)
// are unbiased estimates. Their quotient is not, so each is averaged over steps first.
#pragma once

#include <cstdint>
#include <optional>

namespace ingot {

class NoiseScale {
 public:
  static constexpr double kDecay = 0.95;  // of the exponential moving averages

  struct Estimate {
    double gradient = 0, noise = 0;  // |G|^2, and tr(Sigma) per token
  };
  // REQUIRES: b < B.
  static Estimate estimate(double small_squares, double b, double big_squares, double B);

  // Adds a step. REQUIRES: as estimate().
  void add(double small_squares, double b, double big_squares, double B);
  // Returns nullopt before the first step, and while the averages have no positive quotient.
  std::optional<double> tokens() const;

 private:
  Estimate mean_;
  bool is_empty_ = true;
};

}  // namespace ingot
