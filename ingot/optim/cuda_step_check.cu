#include "ingot/optim/cuda_step_check.h"

#include <limits>

#include "ingot/core/cuda/cuda_kernel.h"
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
    sum_own(RankSums* own, const float* parts, const LossTotals* losses, int64_t micros, RankCounts counts) {
  __shared__ double of_thread[kSquareParts];
  const unsigned thread = threadIdx.x;
  of_thread[thread] = static_cast<double>(parts[thread]);
  __syncthreads();
  for (unsigned half = kSquareParts / 2; half > 0; half /= 2) {
    if (thread < half) of_thread[thread] += of_thread[thread + half];
    __syncthreads();
  }
  if (thread != 0) return;
  RankSums sums{of_thread[0], 0, 0, 0, counts.squares, counts.losses};
  for (int64_t i = 0; i < micros; ++i) {
    sums.loss += losses[i].loss;
    sums.counted += losses[i].counted;
    sums.correct += losses[i].correct;
  }
  *own = sums;
}

// One thread, because the ranks' sums are added in order.
__global__ void __launch_bounds__(1)
    judge(StepCheck* verdict, const RankSums* ranks, int64_t count, double expected_tokens, double limit) {
  double squares = 0, loss = 0;
  int64_t counted = 0, correct = 0;
  bool is_bad = false;
  for (int64_t r = 0; r < count; ++r) {
    const RankSums sums = ranks[r];
    is_bad = is_bad || !is_finite(sums.squares) || !is_finite(sums.loss);
    if (sums.counts_squares) squares += sums.squares;
    if (!sums.counts_losses) continue;
    loss += sums.loss;
    counted += sums.counted;
    correct += sums.correct;
  }
  const double correction = grad_correction(expected_tokens, counted);
  const double norm = std::sqrt(squares) * correction;
  if (is_bad || !is_finite(loss) || !is_finite(norm)) verdict->is_bad = 1;
  verdict->norm = norm;
  verdict->loss = loss;
  verdict->counted = counted;
  verdict->correct = correct;
  verdict->factor = verdict->is_bad ? std::numeric_limits<float>::quiet_NaN()
                                    : static_cast<float>(correction * clip_factor(norm, limit));
}

}  // namespace

void sum_step(const Tensor& own, const Tensor& parts, const Tensor& losses, RankCounts counts,
              Stream& stream) {
  check_tensor(own, DType::u8, {kRankSumsBytes}, "sum_step: own");
  check_tensor(parts, DType::f32, {kSquareParts}, "sum_step: parts");
  check_tensor(losses, DType::u8, {losses.dim(0), kLossTotalsBytes}, "sum_step: losses");
  launch({stream, "sum_step", dim3(1), dim3(kSquareParts)}, sum_own,
         reinterpret_cast<RankSums*>(own.as<uint8_t>()), static_cast<const float*>(parts.as<float>()),
         reinterpret_cast<const LossTotals*>(losses.as<uint8_t>()), losses.dim(0), counts);
}

void check_step(const Tensor& verdict, const Tensor& ranks, double expected_tokens, double limit,
                Stream& stream) {
  check_tensor(verdict, DType::u8, {kStepCheckBytes}, "check_step: verdict");
  check_tensor(ranks, DType::u8, {ranks.dim(0), kRankSumsBytes}, "check_step: ranks");
  launch({stream, "check_step", dim3(1), dim3(1)}, judge, reinterpret_cast<StepCheck*>(verdict.as<uint8_t>()),
         reinterpret_cast<const RankSums*>(ranks.as<uint8_t>()), ranks.dim(0), expected_tokens, limit);
}

double sum_of_parts(double* parts) {
  for (int64_t half = kSquareParts / 2; half > 0; half /= 2)
    for (int64_t i = 0; i < half; ++i) parts[i] += parts[i + half];
  return parts[0];
}

}  // namespace ingot::cuda
