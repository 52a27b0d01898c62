#include "ingot/ops/kernel_report.h"

#include "ingot/ops/cuda/cuda_libraries.h"

namespace ingot {

std::string KernelReport::refused() const {
  std::string text;
  for (const auto& [kind, shapes] : products)
    if (shapes.refused > 0) text += (text.empty() ? "" : "; ") + kind;
  return text;
}

KernelReport kernel_report(const Stream& stream) {
  if (stream.device != Device::kCuda || !stream.matmul_primitives) return {};
  return static_cast<const cuda::Libraries&>(*stream.matmul_primitives).report;
}

}  // namespace ingot
