#include "ingot/nn/tensor_parallel.h"

#include <cstdlib>
#include <numeric>

#include "ingot/core/error.h"

namespace ingot {
namespace {

// Returns the divisor of `common` nearest to `wanted` that divides the key-value heads or is a multiple of
// them.
int64_t nearest_count(int64_t common, int64_t kv_heads, int64_t wanted) {
  int64_t nearest = 1;
  for (int64_t n = 1; n <= common; ++n) {
    const bool is_valid = common % n == 0 && (kv_heads % n == 0 || n % kv_heads == 0);
    if (is_valid && std::abs(n - wanted) < std::abs(nearest - wanted)) nearest = n;
  }
  return nearest;
}

}  // namespace

void TensorParallel::validate(const ModelConfig& config) const {
  INGOT_CHECK(count >= 1 && rank >= 0 && rank < count, "TensorParallel: rank {} of {}", rank, count);
  if (count > 1 && config.qk_norm_over == QkNormOver::kWidth)
    fail(ErrorKind::kUsage,
         "parallel.tp must be 1 with model.qk_norm_over = width, whose norms need all heads, got {}; use "
         "parallel.fsdp, parallel.dp or parallel.pp",
         count);
  if (count > config.kv_heads && config.value_embeddings > 0)
    fail(ErrorKind::kUsage,
         "parallel.tp must be at most model.kv_heads = {} with model.value_embeddings = {}, got {}",
         config.kv_heads, config.value_embeddings, count);
  const int64_t common = std::gcd(config.heads, std::gcd(config.ffn, config.vocab_padded()));
  const int64_t kv_heads = config.kv_heads;
  if (common % count != 0 || (kv_heads % count != 0 && count % kv_heads != 0))
    fail(ErrorKind::kUsage,
         "parallel.tp must divide model.heads = {}, model.ffn = {} and the {} rows of the vocabulary (padded "
         "to "
         "model.vocab_multiple), and divide model.kv_heads = {} or be a multiple of it, got {}; the nearest "
         "valid "
         "value is {}",
         config.heads, config.ffn, config.vocab_padded(), kv_heads, count,
         nearest_count(common, kv_heads, count));
}

}  // namespace ingot
