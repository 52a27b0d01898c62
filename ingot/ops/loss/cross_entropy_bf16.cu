#include "ingot/ops/cross_entropy_bf16.h"

#include "ingot/core/cuda/cuda_elementwise.h"

namespace ingot::cuda {
namespace {

template <int W>
struct Round {
  float* x;

  __device__ void operator()(int64_t i) const {
    Floats<W> v = load<W>(static_cast<const float*>(x + i));
#pragma unroll
    for (int k = 0; k < W; ++k) v.at[k] = rounded<bf16>(v.at[k]);
    store(x + i, v);
  }
};

struct Bf16Rows {
  float* losses;
  bf16* d_logits;
  float* logits;
  const int32_t* targets;
  int V, Vp;
  float grad_scale;
};

// Returns the sum of x (n) from left to right, rounded to bf16 after every addition: this is the mistake
// that the op demonstrates. All threads of the block load terms, thread 0 adds them.
__device__ __forceinline__ float running_sum(const float* x, int n) {
  __shared__ float terms[kThreads];
  __shared__ float total;
  float sum = 0;
  for (int begin = 0; begin < n; begin += kThreads) {
    const int i = begin + static_cast<int>(threadIdx.x);
    if (i < n) terms[threadIdx.x] = x[i];
    __syncthreads();
    if (threadIdx.x == 0)
      for (int k = 0; k < kThreads && begin + k < n; ++k) sum = rounded<bf16>(sum + terms[k]);
    __syncthreads();
  }
  if (threadIdx.x == 0) total = sum;
  __syncthreads();
  return total;
}

// A block owns a row and overwrites its logits with their exponentials.
__global__ void __launch_bounds__(kThreads) bf16_rows_loss(Bf16Rows a) {
  const int64_t n = blockIdx.x;
  float* x = a.logits + n * a.Vp;
  bf16* d = a.d_logits ? a.d_logits + n * a.Vp : nullptr;
  const int target = a.targets[n], first = static_cast<int>(threadIdx.x);
  if (target < 0 || target >= a.V) {  // keeps the loss of the f32 op
    if (d)
      for (int j = first; j < a.Vp; j += kThreads) d[j] = bf16(0.0f);
    return;
  }
  const float x_target = x[target];
  float x_max = x[0];
  for (int j = first; j < a.V; j += kThreads) x_max = x[j] > x_max ? x[j] : x_max;
  x_max = group_max<kThreads>(x_max);
  for (int j = first; j < a.V; j += kThreads) x[j] = rounded<bf16>(std::exp(rounded<bf16>(x[j] - x_max)));
  __syncthreads();
  const float sum = running_sum(x, a.V);
  if (threadIdx.x == 0) {
    const float lse = rounded<bf16>(x_max + rounded<bf16>(std::log(sum)));
    a.losses[n] = rounded<bf16>(lse - x_target);
  }
  if (!d) return;
  for (int j = first; j < a.Vp; j += kThreads) {
    float p = j < a.V ? rounded<bf16>(x[j] / sum) : 0.0f;
    if (j == target) p = rounded<bf16>(p - 1.0f);
    d[j] = bf16(p * a.grad_scale);
  }
}

}  // namespace

void round_to_bf16(const Tensor& x, Stream& stream) {
  const int64_t n = x.elements();
  with_width<float>(n % 4 == 0 && is_aligned(x.data), [&](auto width) {
    constexpr int W = decltype(width)::value;
    launch_elementwise<W>(n, "round_to_bf16", stream, Round<W>{x.as<float>()});
  });
}

void cross_entropy_in_bf16(const Tensor& losses, const Tensor& d_logits, const Tensor& logits,
                           const Tensor& targets, const CrossEntropyConfig& config, Stream& stream) {
  const Bf16Rows rows{losses.as<float>(),    optional<bf16>(d_logits),       logits.as<float>(),
                      targets.as<int32_t>(), static_cast<int>(config.vocab), static_cast<int>(logits.dim(1)),
                      config.grad_scale};
  launch({stream, "cross_entropy_in_bf16", dim3(blocks_for(logits.dim(0), 1)), dim3(kThreads)},
         bf16_rows_loss, rows);
}

}  // namespace ingot::cuda
