#include <array>
#include <bit>
#include <limits>

#include "ingot/core/cuda/cuda_elementwise.h"
#include "ingot/optim/cuda_shard_places.h"
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

// The values of all codes in shared memory, which a block of kThreads threads copies there.
struct SharedMaps {
  float *with_sign, *without_sign;

  __device__ __forceinline__ void fill(const Maps& maps) const {
    with_sign[threadIdx.x] = maps.with_sign[threadIdx.x];
    without_sign[threadIdx.x] = maps.without_sign[threadIdx.x];
    __syncthreads();
  }
};

// One element before and after its update, the gradient and the new moments.
struct Moved {
  Floats<1> before{}, w{}, g{};
  float m = 0, v = 0;
};

// Returns the update of element i, which shares the scales of `block`. Writes nothing.
__device__ __forceinline__ Moved moved(const Pass& a, const AdamW& rule, const Codes& codes,
                                       const SharedMaps& maps, int64_t i, int64_t block) {
  Moved e;
  e.w = e.before = read_weights<1>(a, i);
  e.g.at[0] = a.g[i] * a.factor.of_device();
  e.m = maps.with_sign[codes.m[i]] * codes.m_absmax[block];
  e.v = maps.without_sign[codes.v[i]] * codes.v_absmax[block];
  const float gradient = e.g.at[0] * rule.grad_scale;
  if (gradient * gradient <= std::numeric_limits<float>::max()) rule(e.w.at[0], e.g.at[0], e.m, e.v);
  return e;
}

__device__ __forceinline__ void store_weight(const Pass& a, int64_t i, const Moved& e) {
  if (!a.keeps_g) a.g[i] = 0;
  if (a.average) a.average[i] += (e.w.at[0] - a.average[i]) * a.average_part;
  write_weights(a, i, e.w);
}

__device__ __forceinline__ void store_codes(const Codes& codes, int64_t i, const Moved& e, float m_most,
                                            float v_most) {
  codes.m[i] = signed_code(e.m * reciprocal(m_most));
  codes.v[i] = unsigned_code(e.v * reciprocal(v_most));
}

// A block updates 256 elements that share a scale, one per thread. The state traffic is 4 bytes per element.
__global__ void __launch_bounds__(kThreads) update_codes(Pass a, AdamW rule, Codes codes, Maps maps) {
  __shared__ float with_sign[kThreads], without_sign[kThreads];
  const SharedMaps shared{with_sign, without_sign};
  shared.fill(maps);
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (a.factor.leaves_out()) {
    if (i < a.n && !a.keeps_g) a.g[i] = 0;
    return;
  }
  Moved e;
  if (i < a.n) {
    e = moved(a, rule, codes, shared, i, blockIdx.x);
    store_weight(a, i, e);
  }
  const float m_most = group_max<kThreads>(std::fabs(e.m)), v_most = group_max<kThreads>(e.v);
  if (i < a.n) store_codes(codes, i, e, m_most, v_most);
  if (threadIdx.x == 0) {
    codes.m_absmax[blockIdx.x] = m_most;
    codes.v_absmax[blockIdx.x] = v_most;
  }
  if (a.totals) weights::report_totals(a, blockIdx.x, i, e.before, e.w, e.g, rule.grad_scale);
}

// A scattered shard: its elements' places in the parameter, whose blocks of 256 elements share scales.
struct Scattered {
  ShardPlaces places;
  int64_t columns;  // the parameter's

  __device__ __forceinline__ int64_t block_of(int64_t i) const {
    const RowColumn at = places.of(i);
    return (int64_t{at.row} * columns + at.column) / AdamW8bit::kBlock;
  }
};

// Raises most[block] to the largest magnitude of the lanes' elements in the block. The bits of magnitudes are
// ordered like the magnitudes, and the order of maxima does not matter. All lanes of a warp call it; block:
// -1 without an element.
__device__ __forceinline__ void raise(uint32_t* most, int64_t block, float magnitude) {
  const int64_t first = __shfl_sync(0xffffffffu, block, 0);
  const bool is_one_block = __ballot_sync(0xffffffffu, block == first) == 0xffffffffu;
  const float largest = warp_max(magnitude);
  const bool is_speaker = !is_one_block || threadIdx.x % kWarp == 0;
  if (block >= 0 && is_speaker)
    atomicMax(most + block, std::bit_cast<uint32_t>(is_one_block ? largest : magnitude));
}

// m_most and v_most (blocks): raised to the largest magnitudes of the new moments of this shard's elements. A
// thread measures one element.
__global__ void __launch_bounds__(kThreads)
    measure_codes(uint32_t* m_most, uint32_t* v_most, Pass a, AdamW rule, Codes codes, Maps maps,
                  Scattered shard) {
  __shared__ float with_sign[kThreads], without_sign[kThreads];
  const SharedMaps shared{with_sign, without_sign};
  shared.fill(maps);
  if (a.factor.leaves_out()) return;
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  const int64_t block = i < a.n ? shard.block_of(i) : -1;
  Moved e;
  if (i < a.n) e = moved(a, rule, codes, shared, i, block);
  raise(m_most, block, std::fabs(e.m));
  raise(v_most, block, e.v);
}

// Updates a scattered shard, a thread per element; m_most and v_most are those of all ranks. The scales in
// `codes` are still the old ones.
__global__ void __launch_bounds__(kThreads)
    update_scattered_codes(const float* m_most, const float* v_most, Pass a, AdamW rule, Codes codes,
                           Maps maps, Scattered shard) {
  __shared__ float with_sign[kThreads], without_sign[kThreads];
  const SharedMaps shared{with_sign, without_sign};
  shared.fill(maps);
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (a.factor.leaves_out()) {
    if (i < a.n && !a.keeps_g) a.g[i] = 0;
    return;
  }
  Moved e;
  if (i < a.n) {
    const int64_t block = shard.block_of(i);
    e = moved(a, rule, codes, shared, i, block);
    store_weight(a, i, e);
    store_codes(codes, i, e, m_most[block], v_most[block]);
  }
  if (a.totals) weights::report_totals(a, blockIdx.x, i, e.before, e.w, e.g, rule.grad_scale);
}

struct SetScales {
  float* scales;
  const float* most;
  StepFactor factor;

  __device__ void operator()(int64_t i) const {
    if (!factor.leaves_out()) scales[i] = most[i];
  }
};

Codes codes_of(const ParamState& p) {
  INGOT_CHECK(p.state.size() == 4 && p.state[0].dtype == DType::u8, "update_adamw_8bit: {} has other states",
              p.param.name);
  return {p.state[0].as<uint8_t>(), p.state[1].as<uint8_t>(), p.state[2].as<float>(), p.state[3].as<float>()};
}

Maps all_maps() { return {dynamic_map(true), dynamic_map(false)}; }

void update_adamw_8bit(const ParamUpdate& update, const AdamW& rule, Stream& stream) {
  static_assert(kThreads == AdamW8bit::kBlock, "a thread for every element of a block that shares a scale");
  const Tensor& totals = update.device_totals;
  const Pass pass = weights::make_pass(update.p, update.step, totals);
  launch({stream, "update_adamw_8bit", dim3(weights::blocks_of(pass, 1, totals)), dim3(kThreads)},
         update_codes, pass, rule, codes_of(update.p), all_maps());
}

Scattered scattered_of(const OptimParam& p, const char* op) { return {places_of(p, op), p.columns()}; }

// The numbers (2 * blocks) are those of m, then those of v.
void measure_scattered(const ParamUpdate& update, const AdamW& rule, Stream& stream) {
  const char* op = "measure_adamw_8bit";
  const ParamState& p = update.p;
  const Tensor& most = update.reductions[0];
  const Pass pass = weights::make_pass(p, update.step, {});
  uint32_t* bits = float_bits(most);
  launch({stream, op, dim3(weights::blocks_of(pass, 1, {})), dim3(kThreads)}, measure_codes, bits,
         bits + most.elements() / 2, pass, rule, codes_of(p), all_maps(), scattered_of(p.param, op));
}

void update_scattered(const ParamUpdate& update, const AdamW& rule, Stream& stream) {
  const char* op = "update_adamw_8bit";
  const ParamState& p = update.p;
  const Tensor &most = update.reductions[0], &totals = update.device_totals;
  const Pass pass = weights::make_pass(p, update.step, totals);
  const Codes codes = codes_of(p);
  const int64_t blocks = most.elements() / 2;
  const float *m_most = most.as<float>(), *v_most = m_most + blocks;
  launch({stream, op, dim3(weights::blocks_of(pass, 1, totals)), dim3(kThreads)}, update_scattered_codes,
         m_most, v_most, pass, rule, codes, all_maps(), scattered_of(p.param, op));
  launch_elementwise<1>(blocks, op, stream, SetScales{codes.m_absmax, m_most, pass.factor});
  launch_elementwise<1>(blocks, op, stream, SetScales{codes.v_absmax, v_most, pass.factor});
}

class CudaAdamW8bit final : public AdamW8bit {
 public:
  using AdamW8bit::AdamW8bit;

  size_t scratch_bytes(const OptimParam& /*param*/) const override { return 0; }
  void reduce(const ParamUpdate& update, int /*order*/, Arena& /*scratch*/, Stream& stream) const override {
    measure_scattered(update, AdamW(options_, update.step), stream);
  }
  void update(std::span<const ParamUpdate> updates, Arena& /*scratch*/, Stream& stream) const override {
    for (const ParamUpdate& u : updates) {
      const AdamW rule(options_, u.step);
      if (u.p.state.front().dtype != DType::u8)  // small parameters have f32 states and use AdamW
        update_elementwise(u.p, rule, u.step, u.device_totals, stream);
      else if (u.p.param.is_scattered)
        cuda::update_scattered(u, rule, stream);
      else
        update_adamw_8bit(u, rule, stream);
    }
  }
};

}  // namespace
}  // namespace ingot::cuda

namespace ingot {

std::unique_ptr<UpdateRule> AdamW8bit::make_on_device(const Options& options) {
  return std::make_unique<cuda::CudaAdamW8bit>(options);
}

}  // namespace ingot
