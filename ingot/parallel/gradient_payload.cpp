#include "ingot/parallel/gradient_payload.h"

#include <cmath>
#include <utility>

#include "ingot/core/error.h"
#include "ingot/core/float16.h"
#include "ingot/core/parallel.h"
#include "ingot/core/work.h"
#include "ingot/ops/cast.h"

namespace ingot {
namespace {

template <typename T>
void round_with_feedback(const Tensor& payload, const Tensor& grad, const Tensor& residual,
                         const Stream& stream) {
  const WorkSpan span(stream, "cast", traffic({payload, grad, residual, residual}));
  if (span.plans()) return;
  parallel_for(grad.elements(), kGrain, [&](int64_t begin, int64_t end) {
    const float* g = grad.as<float>();
    float* r = residual.as<float>();
    T* p = payload.as<T>();
#pragma omp simd
    for (int64_t i = begin; i < end; ++i) {
      const float wanted = g[i] + r[i];
      p[i] = T(wanted);
      const float error = wanted - static_cast<float>(p[i]);
      r[i] = std::isfinite(error) ? error : 0.0f;
    }
  });
}

}  // namespace

void GradientPayload::validate() const {
  for (const auto& [key, dtype] : {std::pair{"payload", blocks}, {"payload_ends", ends}})
    if (dtype != DType::f32 && dtype != DType::bf16 && dtype != DType::f16)
      fail(ErrorKind::kUsage, "parallel.{} must be f32, bf16 or f16, got {}", key, name(dtype));
  if (has_error_feedback && blocks == DType::f32)
    fail(ErrorKind::kUsage,
         "parallel.error_feedback needs parallel.payload = \"bf16\" or \"f16\": f32 loses nothing");
}

void round_gradients(const Tensor& payload, const Tensor& grad, const Tensor& residual, Stream& stream) {
  if (!residual)
    cast(payload, grad, stream);
  else if (payload.dtype == DType::bf16)
    round_with_feedback<bf16>(payload, grad, residual, stream);
  else
    round_with_feedback<f16>(payload, grad, residual, stream);
}

}  // namespace ingot
