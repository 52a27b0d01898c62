#include "ingot/optim/adamw_8bit.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "ingot/optim/dynamic_map.h"
#include "ingot/optim/weight_pass.h"

namespace ingot {
namespace {

// The states of one block.
struct BlockState {
  uint8_t *m8, *v8;
  float *m_absmax, *v_absmax;
};

struct Maps {
  const float *with_sign, *without_sign;  // (256) values of the codes
};

// Of a block's scale; 0 of a subnormal one, whose reciprocal is no f32: such a block becomes 0.
float reciprocal(float scale) { return scale >= std::numeric_limits<float>::min() ? 1 / scale : 0.0f; }

// Moves n <= 256 elements of one block; returns how many gradients were passed over.
int64_t move_block(const AdamW& given, const Maps& maps, float* w, const float* g, const BlockState& state,
                   int64_t n) {
  const AdamW rule = given;  // a local copy stays in registers
  alignas(64) float m[AdamW8bit::kBlock], v[AdamW8bit::kBlock];
  decode_dynamic(m, state.m8, maps.with_sign, *state.m_absmax, n);
  decode_dynamic(v, state.v8, maps.without_sign, *state.v_absmax, n);
  const float limit = std::numeric_limits<float>::max();
  float m_most = 0, v_most = 0;
  int finite = 0;
#pragma omp simd reduction(max : m_most, v_most) reduction(+ : finite)
  for (int64_t j = 0; j < n; ++j) {
    const float gradient = g[j] * rule.grad_scale, square = gradient * gradient;
    float new_m = m[j], new_v = v[j], new_w = w[j];
    rule(new_w, g[j], new_m, new_v);
    m[j] = square <= limit ? new_m : m[j];
    v[j] = square <= limit ? new_v : v[j];
    w[j] = square <= limit ? new_w : w[j];
    finite += square <= limit ? 1 : 0;
    const float size = std::abs(m[j]);
    m_most = m_most > size ? m_most : size;
    v_most = v_most > v[j] ? v_most : v[j];
  }
  *state.m_absmax = m_most;
  *state.v_absmax = v_most;
  encode_signed(state.m8, m, reciprocal(m_most), n);
  encode_unsigned(state.v8, v, reciprocal(v_most), n);
  return n - finite;
}

}  // namespace

AdamW8bit::AdamW8bit(const RuleParams& params)
    : params_(params), small_(params), signed_map_(dynamic_map(true)), unsigned_map_(dynamic_map(false)) {}

std::vector<StateSpec> AdamW8bit::state(const OptimParam& param) const {
  const int64_t n = param.elements(), blocks = (n + kBlock - 1) / kBlock;
  if (param.whole_elements() < kSmallest) return small_.state(param);
  return {{"m8", DType::u8, {n}},
          {"v8", DType::u8, {n}},
          {"m_absmax", DType::f32, {blocks}},
          {"v_absmax", DType::f32, {blocks}}};
}

RangeTotals AdamW8bit::update(const ParamState& p, Range range, const RuleStep& step,
                              const Prepared& prepared) const {
  if (p.param.whole_elements() < kSmallest) return small_.update(p, range, step, prepared);
  const AdamW rule(params_, step);
  const Maps maps{signed_map_.data(), unsigned_map_.data()};
  int64_t skipped = 0;
  RangeTotals totals = for_each_piece(p, range, step, [&](float* w, const float* g, int64_t i, int64_t n) {
    for (int64_t j = 0; j < n; j += kBlock) {
      const int64_t block = (i + j) / kBlock;
      const BlockState state{p.state[0].as<uint8_t>() + i + j, p.state[1].as<uint8_t>() + i + j,
                             p.state[2].as<float>() + block, p.state[3].as<float>() + block};
      skipped += move_block(rule, maps, w + j, g + j, state, std::min(kBlock, n - j));
    }
  });
  totals.non_finite = skipped;
  return totals;
}

}  // namespace ingot
