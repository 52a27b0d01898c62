// Update rules in double, written directly from the papers, for one element or one list at a time.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "tests/reference/numeric.h"

namespace ingot::test {

// AdamW (Loshchilov & Hutter 2019), one element.
struct AdamWElement {
  double w, m = 0, v = 0;
  void step(double g, double lr, double decay, int t, double beta1 = 0.9, double beta2 = 0.95,
            double eps = 1e-8) {
    m = beta1 * m + (1 - beta1) * g;
    v = beta2 * v + (1 - beta2) * g * g;
    w -= lr * decay * w;
    w -= lr * (m / (1 - std::pow(beta1, t))) / (std::sqrt(v / (1 - std::pow(beta2, t))) + eps);
  }
};

// Lion (Chen et al. 2023, algorithm 2), one element.
struct LionElement {
  double w, m = 0;
  void step(double g, double lr, double decay, double beta1 = 0.9, double beta2 = 0.99) {
    const double c = beta1 * m + (1 - beta1) * g;
    w -= lr * ((c > 0) - (c < 0) + decay * w);
    m = beta2 * m + (1 - beta2) * g;
  }
};

// The values of bitsandbytes' create_dynamic_map(signed, 7, 8), built the way bitsandbytes builds
// them: for each decade, the means of neighbours in a linspace from 0.1 to 1, with both signs if
// signed, and 0 and 1; sorted.
inline Doubles dynamic_map_reference(bool is_signed) {
  Doubles values{0, 1};
  for (int i = 0; i < 7; ++i) {
    const int items = (1 << (is_signed ? i : i + 1)) + 1;
    Doubles boundaries;
    for (int k = 0; k < items; ++k) boundaries.push_back(0.1 + 0.9 * k / (items - 1));
    for (size_t k = 0; k + 1 < boundaries.size(); ++k) {
      const double value = std::pow(10.0, i - 6) * (boundaries[k] + boundaries[k + 1]) / 2;
      values.push_back(value);
      if (is_signed) values.push_back(-value);
    }
  }
  std::sort(values.begin(), values.end());
  return values;
}

// Returns the code whose value is nearest to x, by comparing all of them.
inline size_t nearest_code(const Doubles& map, double x) {
  size_t best = 0;
  for (size_t c = 1; c < map.size(); ++c)
    if (std::abs(map[c] - x) < std::abs(map[best] - x)) best = c;
  return best;
}

// One 256-element block of AdamW with 8-bit states (Dettmers et al. 2022). Weight
// decay comes before the update.
struct AdamW8bitBlock {
  Doubles w, m, v;  // m, v: dequantized values of the codes
  void step(const Doubles& g, double lr, double decay, int t) {
    static const Doubles with_sign = dynamic_map_reference(true), without = dynamic_map_reference(false);
    double m_most = 0, v_most = 0;
    for (size_t i = 0; i < w.size(); ++i) {
      AdamWElement element{w[i], m[i], v[i]};
      element.step(g[i], lr, decay, t);
      w[i] = element.w;
      m[i] = element.m;
      v[i] = element.v;
      m_most = std::max(m_most, std::abs(m[i]));
      v_most = std::max(v_most, v[i]);
    }
    for (size_t i = 0; i < w.size(); ++i) {
      m[i] = m_most * with_sign[nearest_code(with_sign, m_most > 0 ? m[i] / m_most : 0)];
      v[i] = v_most * without[nearest_code(without, v_most > 0 ? v[i] / v_most : 0)];
    }
  }
};

// Returns the singular values of a (R, C), for any R and C, in descending order, by
// one-sided Jacobi rotations.
inline Doubles singular_values(Doubles a, size_t R, size_t C) {
  if (R < C) {
    Doubles transposed(a.size());
    for (size_t r = 0; r < R; ++r)
      for (size_t c = 0; c < C; ++c) transposed[c * R + r] = a[r * C + c];
    a = transposed;
    std::swap(R, C);
  }
  for (int sweep = 0; sweep < 60; ++sweep)
    for (size_t p = 0; p + 1 < C; ++p)
      for (size_t q = p + 1; q < C; ++q) {
        double pp = 0, qq = 0, pq = 0;
        for (size_t r = 0; r < R; ++r) {
          pp += a[r * C + p] * a[r * C + p];
          qq += a[r * C + q] * a[r * C + q];
          pq += a[r * C + p] * a[r * C + q];
        }
        if (std::abs(pq) <= 1e-15 * std::sqrt(pp * qq)) continue;
        const double zeta = (qq - pp) / (2 * pq);
        const double tangent = std::copysign(1.0, zeta) / (std::abs(zeta) + std::sqrt(1 + zeta * zeta));
        const double cosine = 1 / std::sqrt(1 + tangent * tangent), sine = cosine * tangent;
        for (size_t r = 0; r < R; ++r) {
          const double x = a[r * C + p], y = a[r * C + q];
          a[r * C + p] = cosine * x - sine * y;
          a[r * C + q] = sine * x + cosine * y;
        }
      }
  Doubles values;
  for (size_t c = 0; c < C; ++c) {
    double squares = 0;
    for (size_t r = 0; r < R; ++r) squares += a[r * C + c] * a[r * C + c];
    values.push_back(std::sqrt(squares));
  }
  std::sort(values.rbegin(), values.rend());
  return values;
}

}  // namespace ingot::test
