// Attention in double precision, computed directly from the formula, and its analytic gradient (which
// attention_test.cpp checks against central differences).
#pragma once

#include <optional>

#include "ingot/ops/attention.h"
#include "tests/reference/numeric.h"

namespace ingot::test {

struct AttentionCase {
  AttentionShape shape;
  bool is_causal = true;
  std::vector<int32_t> doc_start = {};  // (B,T) or empty
  double scale = 1;
  AttentionDropout dropout = {};
  int64_t window = 0;

  // Returns the dropout factor of p[t,s], from the definition in ops/attention.h, with one scalar
  // random word per probability.
  double keep(int64_t b, int64_t h, int64_t t, int64_t s) const {
    const double chance = static_cast<double>(dropout.p);
    if (chance == 0) return 1;
    const int64_t padded_T = (shape.T + 3) / 4 * 4;
    const int64_t index = (((dropout.first_row + b) * shape.H + h) * shape.S + s) * padded_T + t;
    return random_word(dropout.key, static_cast<uint64_t>(index)) < chance * 0x1p32 ? 0 : 1 / (1 - chance);
  }
  bool is_visible(int64_t b, int64_t t, int64_t s) const {
    if (is_causal && s > t + shape.S - shape.T) return false;
    if (window > 0 && t + shape.S - shape.T - s >= window) return false;
    return doc_start.empty() || s >= doc_start[static_cast<size_t>(b * shape.T + t)];
  }
};

struct AttentionResult {
  Doubles out, lse;  // (B,T,H,D), (B,H,T)
};
struct AttentionGradient {
  Doubles dq, dk, dv;
};

// Fills p (S) with the probabilities of query (b, t, h) and returns lse.
inline double attention_row(Doubles& p, const AttentionCase& c, const Doubles& q, const Doubles& k, int64_t b,
                            int64_t t, int64_t h) {
  const auto [B, T, S, H, K, D] = c.shape;
  const double* q_row = &q[static_cast<size_t>(((b * T + t) * H + h) * D)];
  p.assign(static_cast<size_t>(S), -std::numeric_limits<double>::infinity());
  double top = -std::numeric_limits<double>::infinity(), sum = 0;
  for (int64_t s = 0; s < S; ++s) {
    if (!c.is_visible(b, t, s)) continue;
    const double* k_row = &k[static_cast<size_t>(((b * S + s) * K + h / (H / K)) * D)];
    double score = 0;
    for (int64_t d = 0; d < D; ++d) score += q_row[d] * k_row[d];
    p[static_cast<size_t>(s)] = score * c.scale;
    top = std::max(top, score * c.scale);
  }
  for (double& value : p) sum += value = std::exp(value - top);
  for (double& value : p) value /= sum;
  return top + std::log(sum);
}

inline AttentionResult attention_reference(const AttentionCase& c, const Doubles& q, const Doubles& k,
                                           const Doubles& v) {
  const auto [B, T, S, H, K, D] = c.shape;
  AttentionResult result{Doubles(q.size()), Doubles(static_cast<size_t>(B * H * T))};
  Doubles p;
  for (int64_t b = 0; b < B; ++b)
    for (int64_t h = 0; h < H; ++h)
      for (int64_t t = 0; t < T; ++t) {
        result.lse[static_cast<size_t>((b * H + h) * T + t)] = attention_row(p, c, q, k, b, t, h);
        double* out = &result.out[static_cast<size_t>(((b * T + t) * H + h) * D)];
        for (int64_t s = 0; s < S; ++s) {
          const double weight = p[static_cast<size_t>(s)] * c.keep(b, h, t, s);
          const double* v_row = &v[static_cast<size_t>(((b * S + s) * K + h / (H / K)) * D)];
          for (int64_t d = 0; weight > 0 && d < D; ++d) out[d] += weight * v_row[d];
        }
      }
  return result;
}

inline AttentionGradient attention_gradient_reference(const AttentionCase& c, const Doubles& q,
                                                      const Doubles& k, const Doubles& v,
                                                      const Doubles& d_out) {
  const auto [B, T, S, H, K, D] = c.shape;
  AttentionGradient g{Doubles(q.size()), Doubles(k.size()), Doubles(v.size())};
  Doubles p, dp(static_cast<size_t>(S));
  for (int64_t b = 0; b < B; ++b)
    for (int64_t h = 0; h < H; ++h)
      for (int64_t t = 0; t < T; ++t) {
        attention_row(p, c, q, k, b, t, h);
        const auto q_at = static_cast<size_t>(((b * T + t) * H + h) * D);
        const auto kv_at = [&](int64_t s) {
          return static_cast<size_t>(((b * c.shape.S + s) * c.shape.K + h / (c.shape.H / c.shape.K)) *
                                     c.shape.D);
        };
        const auto width = static_cast<size_t>(D);
        double mean = 0;  // sum_s p dp
        for (int64_t s = 0; s < S; ++s) {
          const auto j = static_cast<size_t>(s);
          if (!c.is_visible(b, t, s)) continue;
          dp[j] = 0;
          const double keep = c.keep(b, h, t, s);
          for (size_t d = 0; d < width; ++d) {
            dp[j] += keep * d_out[q_at + d] * v[kv_at(s) + d];
            g.dv[kv_at(s) + d] += keep * p[j] * d_out[q_at + d];
          }
          mean += p[j] * dp[j];
        }
        for (int64_t s = 0; s < S; ++s) {
          const auto j = static_cast<size_t>(s);
          if (!c.is_visible(b, t, s)) continue;
          const double ds = c.scale * p[j] * (dp[j] - mean);
          for (size_t d = 0; d < width; ++d) {
            g.dq[q_at + d] += ds * k[kv_at(s) + d];
            g.dk[kv_at(s) + d] += ds * q[q_at + d];
          }
        }
      }
  return g;
}

}  // namespace ingot::test
