// Shapes and dtypes that the head and its scratch memory agree on. Internal to ops/linear_cross_entropy.
#pragma once

#include <algorithm>

#include "ingot/ops/linear_cross_entropy.h"

namespace ingot {

// Returns the dtype of x and w in the products; for kFp8 that of the decoded 8-bit values.
inline DType product_dtype(HeadPrecision precision) {
  return precision == HeadPrecision::kF32   ? DType::f32
         : precision == HeadPrecision::kF16 ? DType::f16
                                            : DType::bf16;
}

inline bool is_half(HeadPrecision precision) {
  return precision == HeadPrecision::kBf16 || precision == HeadPrecision::kF16;
}

// Tokens whose logits exist at one time, for N tokens.
inline int64_t chunk_tokens(const LinearCrossEntropyConfig& config, int64_t N) {
  return config.kind == HeadKind::kDense ? N : std::min(N, config.chunk_tokens);
}

// True if dw is not added to and yet cannot be overwritten by products, since a compensated sum starts from
// zero and a filter leaves products out.
inline bool zeroes_dw(const LinearCrossEntropyOut& out, const LinearCrossEntropyConfig& config,
                      const LinearCrossEntropyScratch& scratch) {
  return out.dw && !out.adds_dw && (scratch.dw_part || config.filter > 0);
}

}  // namespace ingot
