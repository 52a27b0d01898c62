#include "ingot/ops/accumulate.h"

#include "ingot/core/cuda/cuda_device.h"
#include "ingot/core/dispatch.h"
#include "ingot/core/parallel.h"
#include "ingot/core/work.h"

namespace ingot {

namespace cuda {  // accumulate.cu
decltype(ingot::accumulate) accumulate;
}  // namespace cuda

namespace {

template <typename From>
void add(float* to, const From* from, int64_t n) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) to[i] += static_cast<float>(from[i]);
}

}  // namespace

void accumulate(const Tensor& to, const Tensor& from, Stream& stream) {
  const OpSpan span(stream, "accumulate", traffic({to, to, from}));
  if (span.plans()) return;
  check_tensor(to, DType::f32, from.shape, "accumulate: to");
  INGOT_CHECK(from.is_contiguous(), "accumulate: from must be contiguous, got {}", from.shape.to_string());
  if constexpr (kHasCuda) {
    if (to.device == Device::kCuda) return cuda::accumulate(to, from, stream);
  }
  with_dtype(from.dtype, __func__, [&]<typename From>() {
    parallel_for(to.elements(), kGrain, [&](int64_t begin, int64_t end) {
      add(to.as<float>() + begin, from.as<From>() + begin, end - begin);
    });
  });
}

}  // namespace ingot
