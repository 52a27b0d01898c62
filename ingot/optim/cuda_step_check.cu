#include "ingot/optim/cuda_step_check.h"

#include <limits>

#include "ingot/ops/cuda/cuda_kernel.h"
#include "ingot/ops/loss_sums.h"
#include "ingot/optim/cuda_update.h"
#include "ingot/optim/step_scale.h"

namespace ingot::cuda {
namespace {

__device__ __forceinline__ bool is_finite(double x) {
  return std::fabs(x) <= std::numeric_limits<double>::max();
}

// One block, with one thread per part.
__global__ void __launch_bounds__(kSquareParts)
    judge(StepCheck* verdict, const float* parts, const LossTotals* sums, int64_t micros,
          double expected_tokens, double limit) {
  __shared__ double of_thread[kSquareParts];
  const unsigned thread = threadIdx.x;
  of_thread[thread] = static_cast<double>(parts[thread]);
  __syncthreads();
  for (unsigned half = kSquareParts / 2; half > 0; half /= 2) {
    if (thread < half) of_thread[thread] += of_thread[thread + half];
    __syncthreads();
  }
  if (thread != 0) return;
  double loss = 0;
  int64_t counted = 0;
  for (int64_t i = 0; i < micros; ++i) {
    loss += sums[i].loss;
    counted += sums[i].counted;
  }
  const double correction = grad_correction(expected_tokens, counted);
  const double norm = std::sqrt(of_thread[0]) * correction;
  if (!is_finite(loss) || !is_finite(norm)) verdict->is_bad = 1;
  verdict->norm = norm;
  verdict->factor = verdict->is_bad ? std::numeric_limits<float>::quiet_NaN()
                                    : static_cast<float>(correction * clip_factor(norm, limit));
}

}  // namespace

void check_step(const Tensor& verdict, const Tensor& parts, const Tensor& sums, double expected_tokens,
                double limit, Stream& stream) {
  check_tensor(verdict, DType::u8, {kStepCheckBytes}, "check_step: verdict");
  check_tensor(parts, DType::f32, {kSquareParts}, "check_step: parts");
  check_tensor(sums, DType::u8, {sums.dim(0), kLossTotalsBytes}, "check_step: sums");
  launch({stream, "check_step", dim3(1), dim3(kSquareParts)}, judge,
         reinterpret_cast<StepCheck*>(verdict.as<uint8_t>()), parts.as<float>(),
         reinterpret_cast<const LossTotals*>(sums.as<uint8_t>()), sums.dim(0), expected_tokens, limit);
}

double sum_of_parts(double* parts) {
  for (int64_t half = kSquareParts / 2; half > 0; half /= 2)
    for (int64_t i = 0; i < half; ++i) parts[i] += parts[i + half];
  return parts[0];
}

}  // namespace ingot::cuda
