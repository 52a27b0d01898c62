#include "ingot/optim/cuda_update.h"

#include <array>
#include <limits>
#include <utility>

#include "ingot/core/copy.h"
#include "ingot/optim/cuda_weight_pass.h"
#include "ingot/optim/rules/adam.h"
#include "ingot/optim/rules/adamw.h"
#include "ingot/optim/rules/dynamic_map.h"
#include "ingot/optim/rules/lion.h"
#include "ingot/optim/rules/momentum.h"
#include "ingot/optim/rules/sgd.h"

namespace ingot::cuda {
namespace {

constexpr int kMostStates = 2;

using weights::make_pass;
using weights::Pass;
using weights::read_weights;
using weights::write_weights;

// The update of a rule of optim/rules/elementwise_rule.h; each thread loads and stores the state
// of its elements.
template <typename Rule>
struct RuleMove {
  static constexpr bool kReadsGradient = true;
  static constexpr int kStates = static_cast<int>(Rule::kState.size());
  static_assert(kStates <= kMostStates);

  Rule rule;
  float* state[kMostStates];

  template <int W>
  __device__ __forceinline__ void at(const Pass& a, int64_t i, Floats<W>& w, const Floats<W>& g) const {
    Floats<W> values[kMostStates];
#pragma unroll
    for (int s = 0; s < kStates; ++s) values[s] = load<W>(static_cast<const float*>(state[s] + i));
    move(w, g, a.factor.of_device(), values, std::make_index_sequence<Rule::kState.size()>());
#pragma unroll
    for (int s = 0; s < kStates; ++s) store(state[s] + i, values[s]);
  }

 private:
  template <int W, size_t... S>
  __device__ __forceinline__ void move(Floats<W>& w, const Floats<W>& g, float factor, Floats<W>* values,
                                       std::index_sequence<S...>) const {
#pragma unroll
    for (int k = 0; k < W; ++k) rule(w.at[k], g.at[k] * factor, values[S].at[k]...);
  }
};

// The values of all codes of the two maps.
struct Maps {
  std::array<float, 256> with_sign, without_sign;
};

// The 8-bit state of a parameter.
struct Codes {
  uint8_t *m, *v;
  float *m_absmax, *v_absmax;
};

__device__ __forceinline__ float reciprocal(float scale) {
  return scale >= std::numeric_limits<float>::min() ? 1 / scale : 0.0f;
}

// A block updates 256 elements that share a scale, one per thread. The state traffic is 4 bytes per element.
__global__ void __launch_bounds__(kThreads) update_codes(Pass a, AdamW rule, Codes codes, Maps maps) {
  __shared__ float with_sign[kThreads], without_sign[kThreads];
  with_sign[threadIdx.x] = maps.with_sign[threadIdx.x];
  without_sign[threadIdx.x] = maps.without_sign[threadIdx.x];
  __syncthreads();
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  Floats<1> before{}, w{}, g{};
  float m = 0, v = 0;
  if (a.factor.leaves_out()) {
    if (i < a.n) a.g[i] = 0;
    return;
  }
  if (i < a.n) {
    w = before = read_weights<1>(a, i);
    g.at[0] = a.g[i] * a.factor.of_device();
    m = with_sign[codes.m[i]] * codes.m_absmax[blockIdx.x];
    v = without_sign[codes.v[i]] * codes.v_absmax[blockIdx.x];
    const float gradient = g.at[0] * rule.grad_scale;
    if (gradient * gradient <= std::numeric_limits<float>::max()) rule(w.at[0], g.at[0], m, v);
    a.g[i] = 0;
    if (a.average) a.average[i] += (w.at[0] - a.average[i]) * a.average_part;
    write_weights(a, i, w);
  }
  const float m_most = group_max<kThreads>(std::fabs(m)), v_most = group_max<kThreads>(v);
  if (i < a.n) {
    codes.m[i] = signed_code(m * reciprocal(m_most));
    codes.v[i] = unsigned_code(v * reciprocal(v_most));
  }
  if (threadIdx.x == 0) {
    codes.m_absmax[blockIdx.x] = m_most;
    codes.v_absmax[blockIdx.x] = v_most;
  }
  if (a.totals) weights::report_totals(a.totals, before, w, g, rule.grad_scale);
}

// Block b adds packs b, b + gridDim.x, ... of kThreads * 4 elements of each range in turn; the first block
// also adds the remaining n % 4 elements.
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

}  // namespace

template <typename Rule>
void update_elementwise(const ParamState& p, const Rule& rule, const RuleStep& step, const Tensor& totals,
                        Stream& stream) {
  INGOT_CHECK(p.state.size() == Rule::kState.size(), "update_elementwise: {}: {} states, want {}",
              p.param.name, p.state.size(), Rule::kState.size());
  RuleMove<Rule> move{rule, {}};
  for (size_t s = 0; s < p.state.size(); ++s) move.state[s] = p.state[s].as<float>();
  weights::launch_update(make_pass(p, step, totals), weights::is_wide(p), move, totals, "update_elementwise",
                         stream);
}

template void update_elementwise(const ParamState&, const Sgd&, const RuleStep&, const Tensor&, Stream&);
template void update_elementwise(const ParamState&, const Momentum&, const RuleStep&, const Tensor&, Stream&);
template void update_elementwise(const ParamState&, const Adam&, const RuleStep&, const Tensor&, Stream&);
template void update_elementwise(const ParamState&, const AdamW&, const RuleStep&, const Tensor&, Stream&);
template void update_elementwise(const ParamState&, const Lion&, const RuleStep&, const Tensor&, Stream&);

void update_adamw_8bit(const ParamState& p, const AdamW& rule, const RuleStep& step, const Tensor& totals,
                       Stream& stream) {
  static_assert(kThreads == 256, "a thread for every element of a block that shares a scale");
  INGOT_CHECK(p.state.size() == 4 && p.state[0].dtype == DType::u8, "update_adamw_8bit: {} has other states",
              p.param.name);
  const Pass pass = make_pass(p, step, totals);
  const Codes codes{p.state[0].as<uint8_t>(), p.state[1].as<uint8_t>(), p.state[2].as<float>(),
                    p.state[3].as<float>()};
  const Maps maps{dynamic_map(true), dynamic_map(false)};
  launch({stream, "update_adamw_8bit", dim3(weights::blocks_of(pass, 1, totals)), dim3(kThreads)},
         update_codes, pass, rule, codes, maps);
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

}  // namespace ingot::cuda
