#include "ingot/ops/bf16_masters.h"

#include <algorithm>

#include "ingot/core/cuda/cuda_device.h"
#include "ingot/core/parallel.h"
#include "ingot/core/work.h"
#include "ingot/ops/bf16_tail.h"

namespace ingot {

namespace cuda {  // bf16_masters.cu
decltype(ingot::expand_masters) expand_masters;
decltype(ingot::collapse_masters) collapse_masters;
}  // namespace cuda

namespace {

void check(const Tensor& numbers, const Tensor& w, const Tensor& tail) {
  check_tensor(numbers, DType::f32, w.shape, "bf16 masters: numbers");
  check_tensor(w, DType::bf16, w.shape, "bf16 masters: w");
  if (tail) check_tensor(tail, DType::u16, w.shape, "bf16 masters: tail");
}

}  // namespace

void expand_masters(const Tensor& numbers, const Tensor& w, const Tensor& tail, Stream& stream) {
  const WorkSpan span(stream, "cast", traffic({numbers, w, tail}));
  if (span.plans()) return;
  check(numbers, w, tail);
  if constexpr (kHasCuda) {
    if (w.device == Device::kCuda) return cuda::expand_masters(numbers, w, tail, stream);
  }
  parallel_for(w.elements(), kGrain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const bf16 high = w.as<bf16>()[i];
      numbers.as<float>()[i] = tail ? join_tail(high, tail.as<uint16_t>()[i]) : static_cast<float>(high);
    }
  });
}

void collapse_masters(const Tensor& w, const Tensor& tail, const Tensor& numbers, Stream& stream) {
  const WorkSpan span(stream, "cast", traffic({numbers, w, tail}));
  if (span.plans()) return;
  check(numbers, w, tail);
  if constexpr (kHasCuda) {
    if (w.device == Device::kCuda) return cuda::collapse_masters(w, tail, numbers, stream);
  }
  parallel_for(w.elements(), kGrain, [&](int64_t begin, int64_t end) {
    float* x = numbers.as<float>();
    for (int64_t i = begin; i < end; ++i)
      if (tail)
        split_tail(w.as<bf16>()[i], tail.as<uint16_t>()[i], x[i]);
      else
        w.as<bf16>()[i] = bf16(x[i]);
    std::fill(x + begin, x + end, 0.0f);
  });
}

}  // namespace ingot
