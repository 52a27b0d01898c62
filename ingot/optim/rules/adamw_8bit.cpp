#include "ingot/optim/rules/adamw_8bit.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <limits>

#include "ingot/core/parallel.h"
#include "ingot/optim/rules/dynamic_map.h"
#include "ingot/optim/rules/elementwise_rule.h"
#include "ingot/optim/shard_rows.h"
#include "ingot/optim/weight_pass.h"

namespace ingot {
namespace {

constexpr int64_t kBlock = AdamW8bit::kBlock;

// The states of one block, or of the elements of it that are on this rank.
struct BlockState {
  uint8_t *m8, *v8;
  float *m_absmax, *v_absmax;
};

struct Maps {
  const float *with_sign, *without_sign;  // (256) values of the codes
};

struct Moments {
  alignas(64) float m[kBlock], v[kBlock];
  float m_most = 0, v_most = 0;  // largest magnitudes
  int64_t skipped = 0;           // non-finite gradients that were skipped
};

// Reciprocal of a block's scale. It is 0 for a subnormal scale, whose reciprocal overflows f32; the
// block's codes then become those of 0.
float reciprocal(float scale) { return scale >= std::numeric_limits<float>::min() ? 1 / scale : 0.0f; }

// Updates m, v and 256 elements of w by g. The function has a single loop of fixed length and is not
// inlined, so an element is rounded in the same way whichever elements of its block are on this rank.
[[gnu::noinline]] void move_moments(Moments& to, const AdamW& given, float* w, const float* g) {
  const AdamW rule = given;  // a local copy stays in registers
  float *m = to.m, *v = to.v;
  const float limit = std::numeric_limits<float>::max();
  float m_most = 0, v_most = 0;
  int finite = 0;
#pragma omp simd reduction(max : m_most, v_most) reduction(+ : finite)
  for (int64_t j = 0; j < kBlock; ++j) {
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
  to.m_most = m_most;
  to.v_most = v_most;
  to.skipped = kBlock - finite;
}

// Updates n <= 256 elements of w in one block. Reads the block's states and writes the new moments to `to`.
void move_block(Moments& to, const AdamW& rule, const Maps& maps, float* w, const float* g,
                const BlockState& state, int64_t n) {
  decode_dynamic(to.m, state.m8, maps.with_sign, *state.m_absmax, n);
  decode_dynamic(to.v, state.v8, maps.without_sign, *state.v_absmax, n);
  if (n == kBlock) return move_moments(to, rule, w, g);
  alignas(64) float all_w[kBlock] = {}, all_g[kBlock] = {};
  std::copy_n(w, n, all_w);
  std::copy_n(g, n, all_g);
  std::fill(to.m + n, to.m + kBlock, 0.0f);  // elements that are not on this rank stay zero
  std::fill(to.v + n, to.v + kBlock, 0.0f);
  move_moments(to, rule, all_w, all_g);
  std::copy_n(all_w, n, w);
}

void encode(const Moments& from, const BlockState& state, int64_t n) {
  encode_signed(state.m8, from.m, reciprocal(*state.m_absmax), n);
  encode_unsigned(state.v8, from.v, reciprocal(*state.v_absmax), n);
}

// Raises most to value. The order of calls does not matter to a maximum. REQUIRES: value >= 0.
void raise(float& most, float value) {
  std::atomic_ref<float> shared(most);
  float seen = shared.load(std::memory_order_relaxed);
  while (seen < value && !shared.compare_exchange_weak(seen, value, std::memory_order_relaxed)) {
  }
}

// Calls f(j, block, count) for each run of `count` elements, from element i + j of a shard on, that lies
// in one block of the whole parameter.
template <typename F>
void for_each_block(const OptimParam& p, int64_t i, int64_t n, F&& f) {
  for_each_run(p, i, n, [&](int64_t j, int64_t row, int64_t column, int64_t count) {
    const int64_t first = row * p.columns() + column;
    for (int64_t k = 0; k < count;) {
      const int64_t part = std::min(count - k, kBlock - (first + k) % kBlock);
      f(j + k, (first + k) / kBlock, part);
      k += part;
    }
  });
}

bool is_small(const OptimParam& p) { return p.whole_elements() < AdamW8bit::kSmallest; }
bool shares_scales(const OptimParam& p) { return p.is_scattered && !is_small(p); }
int64_t blocks_of(int64_t n) { return (n + kBlock - 1) / kBlock; }

// Sets the scales to the combined ones, and returns the previous ones (2 * blocks) f32, in scratch.
Tensor replace_scales(const ParamState& p, const Tensor& combined, Arena& scratch) {
  const int64_t blocks = combined.elements() / 2;
  const Tensor before = scratch.alloc(DType::f32, {2 * blocks});
  for (int64_t k = 0; k < 2; ++k) {
    const Tensor& scales = p.state[static_cast<size_t>(2 + k)];
    std::memcpy(before.rows(k * blocks, (k + 1) * blocks).data, scales.data, scales.bytes());
    std::memcpy(scales.data, combined.rows(k * blocks, (k + 1) * blocks).data, scales.bytes());
  }
  return before;
}

}  // namespace

AdamW8bit::AdamW8bit(const Options& options)
    : options_(options), signed_map_(dynamic_map(true)), unsigned_map_(dynamic_map(false)) {}

std::vector<StateSpec> AdamW8bit::state(const OptimParam& param) const {
  if (is_small(param)) return ElementwiseRule<AdamW>(options_).state(param);
  const int64_t n = param.elements(), of_blocks = param.is_scattered ? param.whole_elements() : n;
  const Shape blocks{blocks_of(of_blocks)};
  const StateScope scope = param.is_scattered ? StateScope::kWhole : StateScope::kBlock;
  return {{"m8", DType::u8, {n}},
          {"v8", DType::u8, {n}},
          {"m_absmax", DType::f32, blocks, scope},
          {"v_absmax", DType::f32, blocks, scope}};
}

RuleNeeds AdamW8bit::needs(const OptimParam& param) const {
  if (!shares_scales(param)) return {};
  return {.is_whole = true, .shared = {2 * blocks_of(param.whole_elements()), 0}, .takes_maxima = true};
}

size_t AdamW8bit::scratch_bytes(const OptimParam& param) const {
  if (!shares_scales(param)) return 0;
  return static_cast<size_t>(2 * blocks_of(param.whole_elements())) * sizeof(float) + Arena::kAlign;
}

// Measures the largest magnitudes of this rank's elements of the new m for every block, then those of v.
void AdamW8bit::reduce(const ParamUpdate& update, int /*order*/, Arena& /*scratch*/,
                       Stream& /*stream*/) const {
  const ParamState& p = update.p;
  const AdamW rule(options_, update.step);
  const Maps maps{signed_map_.data(), unsigned_map_.data()};
  float* most = update.reductions[0].as<float>();
  const int64_t blocks = update.reductions[0].elements() / 2;
  parallel_for(p.param.elements(), kGrain, [&](int64_t begin, int64_t end) {
    for_each_block(p.param, begin, end - begin, [&](int64_t j, int64_t block, int64_t n) {
      const int64_t i = begin + j;
      const BlockState state{p.state[0].as<uint8_t>() + i, p.state[1].as<uint8_t>() + i,
                             p.state[2].as<float>() + block, p.state[3].as<float>() + block};
      Moments moments;
      float w[kBlock] = {};  // a dummy; the new weights are not used
      move_block(moments, rule, maps, w, p.param.g.as<float>() + i, state, n);
      raise(most[block], moments.m_most);
      raise(most[blocks + block], moments.v_most);
    });
  });
}

RangeTotals AdamW8bit::update_scattered(const ParamState& p, Range range, const RuleStep& step,
                                        const Tensor& scales_before) const {
  const AdamW rule(options_, step);
  const Maps maps{signed_map_.data(), unsigned_map_.data()};
  float* before = scales_before.as<float>();
  const int64_t blocks = scales_before.elements() / 2;
  int64_t skipped = 0;
  RangeTotals totals = for_each_run(p, range, step, [&](float* w, const float* g, int64_t i, int64_t n) {
    for_each_block(p.param, i, n, [&](int64_t j, int64_t block, int64_t count) {
      BlockState state{p.state[0].as<uint8_t>() + i + j, p.state[1].as<uint8_t>() + i + j, before + block,
                       before + blocks + block};
      Moments moments;
      move_block(moments, rule, maps, w + j, g + j, state, count);
      skipped += moments.skipped;
      state.m_absmax = p.state[2].as<float>() + block;
      state.v_absmax = p.state[3].as<float>() + block;
      encode(moments, state, count);
    });
  });
  totals.non_finite = skipped;
  return totals;
}

RangeTotals AdamW8bit::update_range(const ParamState& p, Range range, const RuleStep& step) const {
  if (is_small(p.param)) return ElementwiseRule<AdamW>(options_).update_range(p, range, step);
  const AdamW rule(options_, step);
  const Maps maps{signed_map_.data(), unsigned_map_.data()};
  int64_t skipped = 0;
  RangeTotals totals = for_each_run(p, range, step, [&](float* w, const float* g, int64_t i, int64_t n) {
    for (int64_t j = 0; j < n; j += kBlock) {
      const int64_t block = (i + j) / kBlock, count = std::min(kBlock, n - j);
      const BlockState state{p.state[0].as<uint8_t>() + i + j, p.state[1].as<uint8_t>() + i + j,
                             p.state[2].as<float>() + block, p.state[3].as<float>() + block};
      Moments moments;
      move_block(moments, rule, maps, w + j, g + j, state, count);
      *state.m_absmax = moments.m_most;
      *state.v_absmax = moments.v_most;
      encode(moments, state, count);
      skipped += moments.skipped;
    }
  });
  totals.non_finite = skipped;
  return totals;
}

void AdamW8bit::update(std::span<const ParamUpdate> updates, Arena& scratch, Stream& /*stream*/) const {
  const ParamUpdate& first = updates.front();
  if (!shares_scales(first.p.param))
    return update_ranges(updates,
                         [&](const ParamUpdate& u, Range range) { return update_range(u.p, range, u.step); });
  const Tensor before = replace_scales(first.p, first.reductions[0], scratch);
  update_ranges(updates, [&](const ParamUpdate& u, Range range) {
    return update_scattered(u.p, range, u.step, before);
  });
}

}  // namespace ingot
