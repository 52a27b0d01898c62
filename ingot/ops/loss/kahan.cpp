#include "ingot/ops/loss/kahan.h"

#include "ingot/core/cuda/cuda_device.h"
#include "ingot/core/parallel.h"
#include "ingot/core/work.h"

namespace ingot {

namespace cuda {  // kahan.cu
decltype(ingot::kahan_add) kahan_add;
}  // namespace cuda

void kahan_add(const Tensor& sum, const Tensor& lost, const Tensor& x, Stream& stream) {
  const OpSpan span(stream, "kahan", traffic({sum, sum, lost, lost, x}));
  if (span.plans()) return;
  check_tensor(lost, DType::f32, sum.shape, "kahan_add: lost");
  check_tensor(x, DType::f32, sum.shape, "kahan_add: x");
  INGOT_CHECK(sum.is_contiguous() && lost.is_contiguous() && x.is_contiguous(), "kahan_add: {} is strided",
              sum.shape.to_string());
  if constexpr (kHasCuda) {
    if (sum.device == Device::kCuda) return cuda::kahan_add(sum, lost, x, stream);
  }
  float *s = sum.as<float>(), *l = lost.as<float>();
  const float* terms = x.as<float>();
  parallel_for(sum.elements(), kGrain, [&](int64_t begin, int64_t end) {
#pragma omp simd
    for (int64_t i = begin; i < end; ++i) {
      const float y = terms[i] - l[i], total = s[i] + y;
      l[i] = (total - s[i]) - y;
      s[i] = total;
    }
  });
}

}  // namespace ingot
