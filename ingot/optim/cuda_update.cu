#include "ingot/optim/cuda_update.h"

#include <array>
#include <limits>
#include <utility>

#include "ingot/core/copy.h"
#include "ingot/ops/bf16_tail.h"
#include "ingot/ops/cuda_kernel.h"
#include "ingot/optim/adam.h"
#include "ingot/optim/adamw.h"
#include "ingot/optim/dynamic_map.h"
#include "ingot/optim/lion.h"
#include "ingot/optim/momentum.h"
#include "ingot/optim/round_stochastically.h"
#include "ingot/optim/sgd.h"

namespace ingot::cuda {
namespace {

constexpr int kMostStates = 2;

// One of w32; w16 and tail; w16 and rounding.
struct Pass {
  int64_t n;
  float* w32;
  bf16* w16;
  uint16_t* tail;
  RandomKey rounding;
  bf16* compute;
  float* g;
  float* state[kMostStates];
  float* average;
  float average_part;
  const float* clip;
  float* totals;
};

template <int W>
__device__ __forceinline__ Floats<W> read_weights(const Pass& a, int64_t i) {
  if (a.w32) return load<W>(static_cast<const float*>(a.w32 + i));
  if (!a.tail) return load<W>(static_cast<const bf16*>(a.w16 + i));
  const Raw<bf16, W> high = *reinterpret_cast<const Raw<bf16, W>*>(a.w16 + i);
  const Raw<uint16_t, W> low = *reinterpret_cast<const Raw<uint16_t, W>*>(a.tail + i);
  Floats<W> w;
#pragma unroll
  for (int k = 0; k < W; ++k) w.at[k] = join_tail(high.at[k], low.at[k]);
  return w;
}

template <int W>
__device__ __forceinline__ void write_weights(const Pass& a, int64_t i, const Floats<W>& w) {
  if (a.w32) {
    store(a.w32 + i, w);
    if (a.compute) store(a.compute + i, w);
    return;
  }
  Raw<bf16, W> high;
  Raw<uint16_t, W> low;
  if (a.tail) {
#pragma unroll
    for (int k = 0; k < W; ++k) split_tail(high.at[k], low.at[k], w.at[k]);
    *reinterpret_cast<Raw<uint16_t, W>*>(a.tail + i) = low;
  } else {
    static_assert(8 % W == 0, "the half-words of W elements are of one block of random words");
    const Philox4 words = random_block(a.rounding, static_cast<uint64_t>(i) / 8);
#pragma unroll
    for (int k = 0; k < W; ++k) {
      const int half = static_cast<int>((i + k) % 8);
      high.at[k] =
          round_stochastically(w.at[k], static_cast<uint16_t>(words[half / 2] >> (half % 2 == 0 ? 0 : 16)));
    }
  }
  *reinterpret_cast<Raw<bf16, W>*>(a.w16 + i) = high;
}

template <int W, typename Rule, size_t... S>
__device__ __forceinline__ void move(const Rule& rule, Floats<W>& w, const Floats<W>& g, float clip,
                                     Floats<W>* state, std::index_sequence<S...>) {
#pragma unroll
  for (int k = 0; k < W; ++k) rule(w.at[k], g.at[k] * clip, state[S].at[k]...);
}

// Row blockIdx.x of the totals: |w|^2, |g|^2, |change|^2 and change . w of the block's elements, as
// RangeTotals has them.
template <int W>
__device__ __forceinline__ void report_totals(float* totals, const Floats<W>& before, const Floats<W>& w,
                                              const Floats<W>& g, float factor) {
  float sums[4] = {};
#pragma unroll
  for (int k = 0; k < W; ++k) {
    const float change = w.at[k] - before.at[k], gradient = g.at[k] * factor;
    sums[0] += before.at[k] * before.at[k];
    sums[1] += gradient * gradient;
    sums[2] += change * change;
    sums[3] += change * before.at[k];
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float sum = group_sum<kThreads>(sums[i]);
    if (threadIdx.x == 0) totals[int64_t{blockIdx.x} * 4 + i] = sum;
  }
}

// A thread owns W elements. Weights, gradient and state are read once and written once.
template <int W, typename Rule>
__device__ __forceinline__ void move_pack(const Pass& a, const Rule& rule, int64_t i, const Floats<W>& g,
                                          Floats<W>& w) {
  constexpr int kStates = static_cast<int>(Rule::kState.size());
  static_assert(kStates <= kMostStates);
  Floats<W> state[kMostStates];
#pragma unroll
  for (int s = 0; s < kStates; ++s) state[s] = load<W>(static_cast<const float*>(a.state[s] + i));
  move(rule, w, g, a.clip ? *a.clip : 1.0f, state, std::make_index_sequence<Rule::kState.size()>());
#pragma unroll
  for (int s = 0; s < kStates; ++s) store(a.state[s] + i, state[s]);
  store(a.g + i, Floats<W>{});
  if (a.average) {
    Floats<W> average = load<W>(static_cast<const float*>(a.average + i));
#pragma unroll
    for (int k = 0; k < W; ++k) average.at[k] += (w.at[k] - average.at[k]) * a.average_part;
    store(a.average + i, average);
  }
  write_weights(a, i, w);
}

template <int W, typename Rule>
__global__ void __launch_bounds__(kThreads) update(Pass a, Rule rule) {
  const int64_t i = (int64_t{blockIdx.x} * kThreads + threadIdx.x) * W;
  Floats<W> before{}, w{}, g{};
  if (i < a.n) {
    w = before = read_weights<W>(a, i);
    g = load<W>(static_cast<const float*>(a.g + i));
    move_pack(a, rule, i, g, w);
  }
  if (a.totals) report_totals(a.totals, before, w, g, rule.grad_scale * (a.clip ? *a.clip : 1.0f));
}

// The values of all codes.
struct Maps {
  std::array<float, 256> with_sign, without_sign;
};

// The 8-bit state of a parameter.
struct Codes {
  uint8_t *m, *v;
  float *m_absmax, *v_absmax;
};

// The largest of all threads' values, none of which is negative.
__device__ __forceinline__ float block_max(float value) {
  __shared__ float of_warp[kThreads / kWarp];
  value = warp_max(value);
  __syncthreads();  // whoever still reads the last one
  if (threadIdx.x % kWarp == 0) of_warp[threadIdx.x / kWarp] = value;
  __syncthreads();
  for (int i = 0; i < kThreads / kWarp; ++i) value = value > of_warp[i] ? value : of_warp[i];
  return value;
}

__device__ __forceinline__ float reciprocal(float scale) {
  return scale >= std::numeric_limits<float>::min() ? 1 / scale : 0.0f;
}

// A block owns 256 elements that share a scale, a thread one of them. Moves 4 bytes of state.
__global__ void __launch_bounds__(kThreads) update_codes(Pass a, AdamW rule, Codes codes, Maps maps) {
  __shared__ float with_sign[kThreads], without_sign[kThreads];
  with_sign[threadIdx.x] = maps.with_sign[threadIdx.x];
  without_sign[threadIdx.x] = maps.without_sign[threadIdx.x];
  __syncthreads();
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  Floats<1> before{}, w{}, g{};
  float m = 0, v = 0;
  if (i < a.n) {
    w = before = read_weights<1>(a, i);
    g.at[0] = a.g[i];
    m = with_sign[codes.m[i]] * codes.m_absmax[blockIdx.x];
    v = without_sign[codes.v[i]] * codes.v_absmax[blockIdx.x];
    const float gradient = g.at[0] * rule.grad_scale;
    if (gradient * gradient <= std::numeric_limits<float>::max()) rule(w.at[0], g.at[0], m, v);
    a.g[i] = 0;
    if (a.average) a.average[i] += (w.at[0] - a.average[i]) * a.average_part;
    write_weights(a, i, w);
  }
  const float m_most = block_max(std::fabs(m)), v_most = block_max(v);
  if (i < a.n) {
    codes.m[i] = signed_code(m * reciprocal(m_most));
    codes.v[i] = unsigned_code(v * reciprocal(v_most));
  }
  if (threadIdx.x == 0) {
    codes.m_absmax[blockIdx.x] = m_most;
    codes.v_absmax[blockIdx.x] = v_most;
  }
  if (a.totals) report_totals(a.totals, before, w, g, rule.grad_scale);
}

// Block b adds packs b, b + gridDim.x, ... of kThreads * 4 elements of each range in turn; what is left of
// a range at its end is the first block's.
__global__ void __launch_bounds__(kThreads) squares(float* parts, const SquareRange* ranges, int count) {
  constexpr int W = 4;
  float sum = 0;
  for (int r = 0; r < count; ++r) {
    const float* x = ranges[r].x;
    const int64_t n = ranges[r].n, packed = n / W * W;
    for (int64_t i = (int64_t{blockIdx.x} * kThreads + threadIdx.x) * W; i < packed;
         i += int64_t{gridDim.x} * kThreads * W) {
      const Floats<W> v = load<W>(x + i);
#pragma unroll
      for (int k = 0; k < W; ++k) sum += v.at[k] * v.at[k];
    }
    if (blockIdx.x == 0 && threadIdx.x < n - packed) {
      const float last = x[packed + threadIdx.x];
      sum += last * last;
    }
  }
  sum = group_sum<kThreads>(sum);
  if (threadIdx.x == 0) parts[blockIdx.x] = sum;
}

__global__ void __launch_bounds__(kSquareParts)
    clip(float* factor, float* norm, const float* parts, float limit, float correction) {
  const float total = group_sum<kSquareParts>(parts[threadIdx.x]);
  if (threadIdx.x != 0) return;
  const float length = std::sqrt(total) * correction;
  *norm = length;
  *factor = correction * (limit > 0 ? std::fmin(1.0f, limit / (length + 1e-6f)) : 1.0f);
}

bool is_wide(const ParamState& p) {
  const OptimParam& param = p.param;
  bool all = param.elements() % 4 == 0 && is_aligned(param.w.data) && is_aligned(param.tail.data) &&
             is_aligned(param.compute.data) && is_aligned(param.g.data) && is_aligned(p.average.data);
  for (const Tensor& s : p.state) all = all && is_aligned(s.data);
  return all;
}

// All but the state.
Pass make_pass(const ParamState& p, const RuleStep& step, const Tensor& clip, const Tensor& totals) {
  const OptimParam& param = p.param;
  const bool is_f32 = param.w.dtype == DType::f32;
  Pass pass{.n = param.elements(),
            .w32 = is_f32 ? param.w.as<float>() : nullptr,
            .w16 = is_f32 ? nullptr : param.w.as<bf16>(),
            .tail = optional<uint16_t>(param.tail),
            .rounding = param.rounding,
            .compute = optional<bf16>(param.compute),
            .g = param.g.as<float>(),
            .state = {},
            .average = optional<float>(p.average),
            .average_part = step.average_part,
            .clip = optional<float>(clip),
            .totals = optional<float>(totals)};
  pass.rounding.step = static_cast<uint64_t>(step.t);
  return pass;
}

unsigned blocks_of(const Pass& pass, int width, const Tensor& totals) {
  const unsigned blocks = blocks_for(pass.n, int64_t{kThreads} * width);
  INGOT_CHECK(!totals || totals.elements() >= int64_t{blocks} * 4, "an update: totals of {} rows, {} blocks",
              totals.elements() / 4, blocks);
  return blocks;
}

}  // namespace

template <typename Rule>
void update_elementwise(const ParamState& p, const Rule& rule, const RuleStep& step, const Tensor& clip,
                        const Tensor& totals, Stream& stream) {
  INGOT_CHECK(p.state.size() == Rule::kState.size(), "update_elementwise: {}: {} states, want {}",
              p.param.name, p.state.size(), Rule::kState.size());
  Pass pass = make_pass(p, step, clip, totals);
  for (size_t s = 0; s < p.state.size(); ++s) pass.state[s] = p.state[s].as<float>();
  with_width<float>(is_wide(p), [&](auto width) {
    constexpr int W = decltype(width)::value;
    const unsigned blocks = blocks_of(pass, W, totals);
    if (totals) fill_zero(totals, stream);
    launch({stream, "update_elementwise", dim3(blocks), dim3(kThreads)}, update<W, Rule>, pass, rule);
  });
}

template void update_elementwise(const ParamState&, const Sgd&, const RuleStep&, const Tensor&, const Tensor&,
                                 Stream&);
template void update_elementwise(const ParamState&, const Momentum&, const RuleStep&, const Tensor&,
                                 const Tensor&, Stream&);
template void update_elementwise(const ParamState&, const Adam&, const RuleStep&, const Tensor&,
                                 const Tensor&, Stream&);
template void update_elementwise(const ParamState&, const AdamW&, const RuleStep&, const Tensor&,
                                 const Tensor&, Stream&);
template void update_elementwise(const ParamState&, const Lion&, const RuleStep&, const Tensor&,
                                 const Tensor&, Stream&);

void update_adamw_8bit(const ParamState& p, const AdamW& rule, const RuleStep& step, const Tensor& totals,
                       Stream& stream) {
  static_assert(kThreads == 256, "a thread for every element of a block that shares a scale");
  INGOT_CHECK(p.state.size() == 4 && p.state[0].dtype == DType::u8, "update_adamw_8bit: {} has other states",
              p.param.name);
  const Pass pass = make_pass(p, step, {}, totals);
  const Codes codes{p.state[0].as<uint8_t>(), p.state[1].as<uint8_t>(), p.state[2].as<float>(),
                    p.state[3].as<float>()};
  const Maps maps{dynamic_map(true), dynamic_map(false)};
  launch({stream, "update_adamw_8bit", dim3(blocks_of(pass, 1, totals)), dim3(kThreads)}, update_codes, pass,
         rule, codes, maps);
}

int64_t update_blocks(int64_t n) { return (n + kThreads - 1) / kThreads; }

void sum_squares(const Tensor& parts, const Tensor& ranges, int64_t longest, Stream& stream) {
  check_tensor(parts, DType::f32, {kSquareParts}, "sum_squares: parts");
  check_tensor(ranges, DType::u8, {ranges.dim(0), static_cast<int64_t>(sizeof(SquareRange))},
               "sum_squares: ranges");
  const unsigned blocks = blocks_for(std::max<int64_t>(longest, 1), int64_t{kThreads} * 4);
  fill_zero(parts, stream);
  launch({stream, "sum_squares", dim3(std::min<unsigned>(blocks, kSquareParts)), dim3(kThreads)}, squares,
         parts.as<float>(), reinterpret_cast<const SquareRange*>(ranges.as<uint8_t>()),
         static_cast<int>(ranges.dim(0)));
}

void clip_factor(const Tensor& factor, const Tensor& norm, const Tensor& parts, float limit, float correction,
                 Stream& stream) {
  check_tensor(factor, DType::f32, {1}, "clip_factor: factor");
  check_tensor(norm, DType::f32, {1}, "clip_factor: norm");
  check_tensor(parts, DType::f32, {kSquareParts}, "clip_factor: parts");
  launch({stream, "clip_factor", dim3(1), dim3(kSquareParts)}, clip, factor.as<float>(), norm.as<float>(),
         parts.as<float>(), limit, correction);
}

}  // namespace ingot::cuda
