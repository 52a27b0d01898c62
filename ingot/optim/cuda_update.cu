#include "ingot/optim/cuda_update.h"

#include <utility>

#include "ingot/ops/bf16_tail.h"
#include "ingot/ops/cuda_kernel.h"
#include "ingot/optim/adam.h"
#include "ingot/optim/adamw.h"
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

// A thread owns W elements. Weights, gradient and state are read once and written once.
template <int W, typename Rule>
__global__ void __launch_bounds__(kThreads) update(Pass a, Rule rule) {
  constexpr int kStates = static_cast<int>(Rule::kState.size());
  static_assert(kStates <= kMostStates);
  const int64_t i = (int64_t{blockIdx.x} * kThreads + threadIdx.x) * W;
  if (i >= a.n) return;
  Floats<W> w = read_weights<W>(a, i), state[kMostStates];
  const Floats<W> g = load<W>(static_cast<const float*>(a.g + i));
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

// Block b adds packs b, b + kSquareParts, ... of kThreads * W elements.
template <int W>
__global__ void __launch_bounds__(kThreads) squares(float* parts, const float* x, int64_t n) {
  float sum = 0;
  for (int64_t i = (int64_t{blockIdx.x} * kThreads + threadIdx.x) * W; i < n;
       i += kSquareParts * kThreads * W) {
    const Floats<W> v = load<W>(x + i);
#pragma unroll
    for (int k = 0; k < W; ++k) sum += v.at[k] * v.at[k];
  }
  sum = group_sum<kThreads>(sum);
  if (threadIdx.x == 0) parts[blockIdx.x] += sum;
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

}  // namespace

template <typename Rule>
void update_elementwise(const ParamState& p, const Rule& rule, const RuleStep& step, const Tensor& clip,
                        Stream& stream) {
  const OptimParam& param = p.param;
  INGOT_CHECK(p.state.size() == Rule::kState.size(), "update_elementwise: {}: {} states, want {}", param.name,
              p.state.size(), Rule::kState.size());
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
            .clip = optional<float>(clip)};
  pass.rounding.step = static_cast<uint64_t>(step.t);
  for (size_t s = 0; s < p.state.size(); ++s) pass.state[s] = p.state[s].as<float>();
  with_width<float>(is_wide(p), [&](auto width) {
    constexpr int W = decltype(width)::value;
    launch({stream, "update_elementwise", dim3(blocks_for(pass.n, int64_t{kThreads} * W)), dim3(kThreads)},
           update<W, Rule>, pass, rule);
  });
}

template void update_elementwise(const ParamState&, const Sgd&, const RuleStep&, const Tensor&, Stream&);
template void update_elementwise(const ParamState&, const Momentum&, const RuleStep&, const Tensor&, Stream&);
template void update_elementwise(const ParamState&, const Adam&, const RuleStep&, const Tensor&, Stream&);
template void update_elementwise(const ParamState&, const AdamW&, const RuleStep&, const Tensor&, Stream&);
template void update_elementwise(const ParamState&, const Lion&, const RuleStep&, const Tensor&, Stream&);

void add_squares(const Tensor& parts, const Tensor& x, Stream& stream) {
  check_tensor(parts, DType::f32, {kSquareParts}, "add_squares: parts");
  check_tensor(x, DType::f32, x.shape, "add_squares: x");
  const int64_t n = x.elements();
  with_width<float>(n % 4 == 0 && is_aligned(x.data), [&](auto width) {
    launch({stream, "add_squares", dim3(kSquareParts), dim3(kThreads)}, squares<decltype(width)::value>,
           parts.as<float>(), x.as<float>(), n);
  });
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
