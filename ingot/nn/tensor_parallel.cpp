#include "ingot/nn/tensor_parallel.h"

#include <numeric>

#include "ingot/core/error.h"

namespace ingot {

void TensorParallel::validate(const ModelConfig& config) const {
  INGOT_CHECK(count >= 1 && rank >= 0 && rank < count, "TensorParallel: rank {} of {}", rank, count);
  if (count > 1 && config.qk_norm_over == QkNormOver::kWidth)
    fail(ErrorKind::kUsage,
         "parallel.tp must be 1 with model.qk_norm_over = width, whose norms need all heads, got {}; use "
         "parallel.fsdp, parallel.dp or parallel.pp",
         count);
  const int64_t common =
      std::gcd(std::gcd(config.heads, config.kv_heads), std::gcd(config.ffn, config.vocab_padded()));
  if (common % count != 0)
    fail(ErrorKind::kUsage,
         "parallel.tp must divide model.heads = {}, model.kv_heads = {}, model.ffn = {} and the {} rows of "
         "the "
         "vocabulary (padded to model.vocab_multiple), got {}; the nearest valid value is {}",
         config.heads, config.kv_heads, config.ffn, config.vocab_padded(), count,
         nearest_divisor(common, count));
}

}  // namespace ingot
