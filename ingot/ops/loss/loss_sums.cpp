#include "ingot/ops/loss_sums.h"

#include <cstring>

#include "ingot/core/cuda/cuda_device.h"
#include "ingot/core/work.h"
#include "ingot/ops/cross_entropy.h"

namespace ingot {

namespace cuda {  // loss_sums.cu
decltype(ingot::loss_sums) loss_sums;
}  // namespace cuda

void loss_sums(const Tensor& sums, const Tensor& losses, const Tensor& is_correct, const Tensor& targets,
               Stream& stream) {
  const WorkSpan span(stream, "loss", traffic({losses, is_correct, targets}));
  if (span.plans()) return;
  const int64_t N = losses.elements();
  check_tensor(sums, DType::u8, {kLossTotalsBytes}, "loss_sums: sums");
  check_tensor(losses, DType::f32, {N}, "loss_sums: losses");
  if (is_correct) check_tensor(is_correct, DType::u8, {N}, "loss_sums: is_correct");
  check_tensor(targets, DType::i32, {N}, "loss_sums: targets");
  if constexpr (kHasCuda) {
    if (losses.device == Device::kCuda) return cuda::loss_sums(sums, losses, is_correct, targets, stream);
  }
  LossTotals totals{};
  for (int64_t n = 0; n < N; ++n) {
    if (targets.as<int32_t>()[n] == kIgnoreIndex) continue;
    totals.loss += static_cast<double>(losses.as<float>()[n]);
    if (is_correct) totals.correct += is_correct.as<uint8_t>()[n];
    ++totals.counted;
  }
  std::memcpy(sums.data, &totals, sizeof totals);
}

LossTotals read_loss_sums(const Tensor& sums) {
  check_tensor(sums, DType::u8, {kLossTotalsBytes}, "read_loss_sums");
  LossTotals totals;
  std::memcpy(&totals, sums.data, sizeof totals);
  return totals;
}

}  // namespace ingot
