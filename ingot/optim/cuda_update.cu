#include "ingot/optim/cuda_update.h"

#include <utility>

#include "ingot/core/copy.h"
#include "ingot/optim/cuda_weight_pass.h"

namespace ingot::cuda {
namespace {

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
  static constexpr int kSlots = kStates > 0 ? kStates : 1;

  Rule rule;
  float* state[kSlots];

  template <int W>
  __device__ __forceinline__ void at(const Pass& a, int64_t i, Floats<W>& w, const Floats<W>& g) const {
    Floats<W> values[kSlots];
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

template <typename Rule>
void update_by(std::span<const ElementwiseUpdate<Rule>> updates, Stream& stream) {
  constexpr const char* kOp = "update_elementwise";
  weights::Launches<4, RuleMove<Rule>> wide(kOp, stream);
  weights::Launches<1, RuleMove<Rule>> narrow(kOp, stream);
  for (const ElementwiseUpdate<Rule>& u : updates) {
    const ParamState& p = *u.p;
    INGOT_CHECK(p.state.size() == Rule::kState.size(), "{}: {}: {} states, want {}", kOp, p.param.name,
                p.state.size(), Rule::kState.size());
    RuleMove<Rule> move{u.rule, {}};
    for (size_t s = 0; s < p.state.size(); ++s) move.state[s] = p.state[s].as<float>();
    const Pass pass = make_pass(p, *u.step, u.totals);
    if (weights::is_wide(p) && pass.places.scattered.is_wide)
      wide.add(pass, move, u.totals);
    else
      narrow.add(pass, move, u.totals);
  }
  wide.run();
  narrow.run();
}

template <typename... Rules>
ElementwiseUpdates<Rules...> make_updates(TypeList<Rules...> /*rules*/) {
  return {update_by<Rules>...};
}

}  // namespace

const AllElementwiseUpdates& elementwise_updates() {
  static const AllElementwiseUpdates table = make_updates(ElementwiseRules());
  return table;
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
