// The activations in double precision, computed directly from their formulas.
#pragma once

#include "ingot/ops/activation.h"
#include "tests/reference/numeric.h"

namespace ingot::test {

inline double activation_reference(Activation kind, double x) {
  switch (kind) {
    case Activation::kGeluTanh:
      return x / 2 * (1 + std::tanh(std::sqrt(2 / 3.14159265358979323846) * (x + 0.044715 * x * x * x)));
    case Activation::kGeluExact:
      return x / 2 * std::erfc(-x / std::sqrt(2.0));
    case Activation::kRelu2:
      return x > 0 ? x * x : 0.0;
    case Activation::kSwiglu:  // it has two inputs
      break;
  }
  return std::nan("");
}

inline double silu_reference(double x) { return x / (1 + std::exp(-x)); }

// gate_up is (N, 2F); returns (N, F).
inline Doubles swiglu_reference(const Doubles& gate_up, size_t F) {
  Doubles y(gate_up.size() / 2);
  for (size_t i = 0; i < y.size(); ++i) {
    const size_t gate = i / F * 2 * F + i % F;
    y[i] = silu_reference(gate_up[gate]) * gate_up[gate + F];
  }
  return y;
}

}  // namespace ingot::test
