#include "ingot/parallel/gradient_payload.h"

#include <utility>

#include "ingot/core/error.h"
#include "ingot/ops/cast.h"

namespace ingot {

void GradientPayload::validate() const {
  for (const auto& [key, dtype] : {std::pair{"payload", blocks}, {"payload_ends", ends}})
    if (dtype != DType::f32 && dtype != DType::bf16 && dtype != DType::f16)
      fail(ErrorKind::kUsage, "parallel.{} must be f32, bf16 or f16, got {}", key, name(dtype));
  if (has_error_feedback && blocks == DType::f32)
    fail(ErrorKind::kUsage,
         "parallel.error_feedback needs parallel.payload = \"bf16\" or \"f16\": f32 loses nothing");
}

void round_gradients(const Tensor& payload, const Tensor& grad, const Tensor& residual, Stream& stream) {
  if (residual)
    cast_with_feedback(payload, grad, residual, stream);
  else
    cast(payload, grad, stream);
}

}  // namespace ingot
