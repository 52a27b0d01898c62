// The activations as elementwise rules. A rule has a value and a derivative, and all devices share it.
//
// A rule is a template over a Math that supplies the number type and its functions: VecMath
// (ops/simd/vec_math.h) for CPU registers, ThreadMath (core/cuda/cuda_kernel.h) for floats of a GPU
// thread. Everything is constexpr, so that the device compiler accepts it.
//   using V = ...;  static V constant(float);  static V abs(V);  static V exp(V);  static V reciprocal(V);
#pragma once

namespace ingot {

// sigmoid(x) and its derivative, computed from exp(-|x|) without cancellation.
template <typename Math>
struct Logistic {
  using V = typename Math::V;
  V value, slope;
  explicit constexpr Logistic(V x) {
    const V e = Math::exp(-Math::abs(x));
    const V r = Math::reciprocal(1.0f + e);
    value = x < 0.0f ? e * r : r;
    slope = e * r * r;
  }
};

template <typename Math>
struct SiluRule {
  using V = typename Math::V;
  static constexpr V value(V x) { return x * Math::reciprocal(1.0f + Math::exp(-x)); }
  static constexpr V derivative(V x) {
    const Logistic<Math> s(x);
    return s.value + x * s.slope;
  }
};

// Uses 1 + tanh(u) = 2 sigmoid(2u), which keeps its relative precision where tanh is near -1, with 2u =
// x (kA + kB x^2).
template <typename Math>
struct GeluTanhRule {
  using V = typename Math::V;
  static constexpr float kA = 1.5957691216057308f;  // 2 sqrt(2 / pi)
  static constexpr float kB = 1.5957691216057308f * 0.044715f;
  static constexpr V value(V x) { return x * Math::reciprocal(1.0f + Math::exp(-(x * (kA + kB * (x * x))))); }
  static constexpr V derivative(V x) {
    const V square = x * x;
    const Logistic<Math> s(x * (kA + kB * square));
    return s.value + x * (kA + 3.0f * kB * square) * s.slope;
  }
};

// With a = |x|: Phi(-a) = exp(-a^2 / 2) * k P(k), k = 1 / (1 + 0.305 a). P has degree 7 and is a minimax
// fit with relative error 1e-7 on [0, 14]; beyond that, exp(-a^2 / 2) is 0 in f32.
template <typename Math>
struct GeluExactRule {
  using V = typename Math::V;
  struct Normal {
    V cumulative, density;  // density without its factor 1 / sqrt(2 pi)
  };
  static constexpr Normal normal(V x) {
    const V a = Math::abs(x);
    const V k = Math::reciprocal(1.0f + 0.305f * a);
    V p = Math::constant(0.03669919281f);
    p = p * k - 0.1529883193f;
    p = p * k + 0.1857169096f;
    p = p * k - 0.0379768301f;
    p = p * k + 0.1210216774f;
    p = p * k + 0.103420867f;
    p = p * k + 0.1224668169f;
    p = p * k + 0.1216397327f;
    const V density = Math::exp(-0.5f * (x * x));
    const V tail = density * (p * k);
    return {x < 0.0f ? tail : 1.0f - tail, density};
  }
  static constexpr V value(V x) { return x * normal(x).cumulative; }
  static constexpr V derivative(V x) {
    const Normal n = normal(x);
    return n.cumulative + 0.3989422804f * x * n.density;
  }
};

template <typename Math>
struct Relu2Rule {
  using V = typename Math::V;
  static constexpr V positive_part(V x) { return x < 0.0f ? Math::constant(0.0f) : x; }  // NaN stays NaN
  static constexpr V value(V x) { return positive_part(x) * positive_part(x); }
  static constexpr V derivative(V x) { return 2.0f * positive_part(x); }
};

}  // namespace ingot
