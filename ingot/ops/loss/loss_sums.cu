#include "ingot/ops/loss_sums.h"

#include "ingot/core/cuda/cuda_kernel.h"
#include "ingot/ops/cross_entropy.h"

namespace ingot::cuda {
namespace {

__device__ __forceinline__ LossTotals plus(const LossTotals& a, const LossTotals& b) {
  return {a.loss + b.loss, a.counted + b.counted, a.correct + b.correct};
}

// One block: thread k adds rows k, k + kThreads, ...; a tree then adds the threads' sums. It reads 9
// bytes per row, which is negligible next to the row's logits.
__global__ void __launch_bounds__(kThreads)
    add_rows(LossTotals* sums, const float* losses, const uint8_t* is_correct, const int32_t* targets,
             int64_t N) {
  __shared__ LossTotals of_thread[kThreads];
  LossTotals own{0, 0, 0};
  for (int64_t n = threadIdx.x; n < N; n += kThreads)
    if (targets[n] != kIgnoreIndex)
      own = plus(own, {static_cast<double>(losses[n]), 1, is_correct ? int64_t{is_correct[n]} : 0});
  of_thread[threadIdx.x] = own;
  __syncthreads();
  for (unsigned half = kThreads / 2; half > 0; half /= 2) {
    if (threadIdx.x < half)
      of_thread[threadIdx.x] = plus(of_thread[threadIdx.x], of_thread[threadIdx.x + half]);
    __syncthreads();
  }
  if (threadIdx.x == 0) *sums = of_thread[0];
}

}  // namespace

void loss_sums(const Tensor& sums, const Tensor& losses, const Tensor& is_correct, const Tensor& targets,
               Stream& stream) {
  launch({stream, "loss_sums", dim3(1), dim3(kThreads)}, add_rows,
         reinterpret_cast<LossTotals*>(sums.as<uint8_t>()), losses.as<float>(), optional<uint8_t>(is_correct),
         targets.as<int32_t>(), losses.elements());
}

}  // namespace ingot::cuda
