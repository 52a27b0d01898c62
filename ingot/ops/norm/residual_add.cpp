#include "ingot/ops/residual_add.h"

#include "ingot/core/cuda/cuda_device.h"
#include "ingot/core/dispatch.h"
#include "ingot/core/parallel.h"
#include "ingot/core/work.h"
#include "ingot/ops/simd/vec.h"

namespace ingot {

namespace cuda {  // residual_add.cu
decltype(ingot::residual_add) residual_add;
}  // namespace cuda

void residual_add(const Tensor& sum, const Tensor& x, const Tensor& residual, Stream& stream) {
  const OpSpan span(stream, "norm", traffic({sum, x, residual}));
  if (span.plans()) return;
  INGOT_CHECK(x.is_contiguous(), "residual_add: x must be contiguous, got {}", x.shape.to_string());
  check_tensor(sum, x.dtype, x.shape, "residual_add: sum");
  check_tensor(residual, x.dtype, x.shape, "residual_add: residual");
  if constexpr (kHasCuda) {
    if (x.device == Device::kCuda) return cuda::residual_add(sum, x, residual, stream);
  }
  constexpr int64_t kGrainElements = 1 << 13;  // minimum number of elements per thread
  with_dtype(x.dtype, __func__, [&]<typename T>() {
    parallel_for(x.elements(), kGrainElements, [&](int64_t begin, int64_t end) {
      T* s = sum.as<T>() + begin;
      const T *a = x.as<T>() + begin, *b = residual.as<T>() + begin;
      vec::for_each(end - begin, [&](auto load, auto store) { store(s, load(a) + load(b)); });
    });
  });
}

}  // namespace ingot
