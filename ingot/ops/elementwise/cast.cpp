#include "ingot/ops/cast.h"

#include <cmath>

#include "ingot/core/cuda/cuda_device.h"
#include "ingot/core/dispatch.h"
#include "ingot/core/parallel.h"
#include "ingot/core/work.h"

namespace ingot {

namespace cuda {  // cast.cu
decltype(ingot::cast) cast;
decltype(ingot::cast_with_feedback) cast_with_feedback;
}  // namespace cuda

namespace {

// Assigns the bits as an integer, because copies of a struct do not vectorise.
inline void put(float& to, float x) { to = x; }
template <typename To>
void put(To& to, float x) {
  to.bits = To(x).bits;
}

// Rounds with the scalar type's constructor, which keeps subnormals, so the optimizer's copies of
// weights have the same bits.
template <typename To, typename From>
void convert(To* to, const From* from, int64_t n) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) put(to[i], static_cast<float>(from[i]));
}

template <typename T>
void round_with_feedback(const Tensor& to, const Tensor& from, const Tensor& residual) {
  parallel_for(from.elements(), kGrain, [&](int64_t begin, int64_t end) {
    const float* x = from.as<float>();
    float* r = residual.as<float>();
    T* y = to.as<T>();
#pragma omp simd
    for (int64_t i = begin; i < end; ++i) {
      const float wanted = x[i] + r[i];
      y[i] = T(wanted);
      const float error = wanted - static_cast<float>(y[i]);
      r[i] = std::isfinite(error) ? error : 0.0f;
    }
  });
}

}  // namespace

void cast(const Tensor& to, const Tensor& from, Stream& stream) {
  const OpSpan span(stream, "cast", traffic({to, from}));
  if (span.plans()) return;
  INGOT_CHECK(to.shape == from.shape && to.is_contiguous() && from.is_contiguous(),
              "cast: shapes must be equal and contiguous, got {} and {}", to.shape.to_string(),
              from.shape.to_string());
  if constexpr (kHasCuda) {
    if (to.device == Device::kCuda) return cuda::cast(to, from, stream);
  }
  with_dtype(from.dtype, __func__, [&]<typename From>() {
    with_dtype(to.dtype, "cast", [&]<typename To>() {
      parallel_for(to.elements(), kGrain, [&](int64_t begin, int64_t end) {
        convert(to.as<To>() + begin, from.as<From>() + begin, end - begin);
      });
    });
  });
}

void cast_with_feedback(const Tensor& to, const Tensor& from, const Tensor& residual, Stream& stream) {
  const char* op = "cast_with_feedback";
  const WorkSpan span(stream, "cast", traffic({to, from, residual, residual}));
  if (span.plans()) return;
  check_tensor(from, DType::f32, {from.elements()}, op);
  check_tensor(residual, DType::f32, from.shape, op);
  check_tensor(to, to.dtype == DType::f16 ? DType::f16 : DType::bf16, from.shape, op);
  if constexpr (kHasCuda) {
    if (to.device == Device::kCuda) return cuda::cast_with_feedback(to, from, residual, stream);
  }
  if (to.dtype == DType::bf16)
    round_with_feedback<bf16>(to, from, residual);
  else
    round_with_feedback<f16>(to, from, residual);
}

}  // namespace ingot
