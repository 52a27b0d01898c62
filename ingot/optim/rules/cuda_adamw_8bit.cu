#include <array>
#include <limits>

#include "ingot/optim/cuda_update.h"
#include "ingot/optim/cuda_weight_pass.h"
#include "ingot/optim/rules/adamw_8bit.h"
#include "ingot/optim/rules/dynamic_map.h"

namespace ingot::cuda {
namespace {

using weights::Pass;

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

void update_adamw_8bit(const ParamState& p, const AdamW& rule, const RuleStep& step, const Tensor& totals,
                       Stream& stream) {
  static_assert(kThreads == AdamW8bit::kBlock, "a thread for every element of a block that shares a scale");
  INGOT_CHECK(p.state.size() == 4 && p.state[0].dtype == DType::u8, "update_adamw_8bit: {} has other states",
              p.param.name);
  const Pass pass = weights::make_pass(p, step, totals);
  const Codes codes{p.state[0].as<uint8_t>(), p.state[1].as<uint8_t>(), p.state[2].as<float>(),
                    p.state[3].as<float>()};
  const Maps maps{dynamic_map(true), dynamic_map(false)};
  launch({stream, "update_adamw_8bit", dim3(weights::blocks_of(pass, 1, totals)), dim3(kThreads)},
         update_codes, pass, rule, codes, maps);
}

}  // namespace
}  // namespace ingot::cuda

namespace ingot {

// Small parameters have f32 states and use AdamW.
void AdamW8bit::update_on_device(const ParamState& p, const Options& options, const RuleStep& step,
                                 const Tensor& totals, Arena& /*scratch*/, Stream& stream) {
  const AdamW rule(options, step);
  if (p.state.front().dtype != DType::u8) return cuda::update_elementwise(p, rule, step, totals, stream);
  cuda::update_adamw_8bit(p, rule, step, totals, stream);
}

}  // namespace ingot
