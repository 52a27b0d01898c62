#include "ingot/train/noise_scale.h"

namespace ingot {

NoiseScale::Estimate NoiseScale::estimate(double small_squares, double b, double big_squares, double B) {
  return {.gradient = (B * big_squares - b * small_squares) / (B - b),
          .noise = (small_squares - big_squares) / (1 / b - 1 / B)};
}

void NoiseScale::add(double small_squares, double b, double big_squares, double B) {
  const Estimate one = estimate(small_squares, b, big_squares, B);
  mean_.gradient = kDecay * mean_.gradient + (1 - kDecay) * one.gradient;
  mean_.noise = kDecay * mean_.noise + (1 - kDecay) * one.noise;
  is_empty_ = false;
}

std::optional<double> NoiseScale::tokens() const {
  if (is_empty_ || mean_.gradient <= 0 || mean_.noise <= 0) return std::nullopt;
  return mean_.noise / mean_.gradient;
}

}  // namespace ingot
