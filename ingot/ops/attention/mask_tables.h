// What cuDNN's attention reads from memory about masks, made on the device. Defined in builds with CUDA.
#pragma once

#include "ingot/core/stream.h"
#include "ingot/core/tensor.h"

namespace ingot::cuda {

// A sliding window as a mask of documents, for kernels that know only the latter:
// starts[b][t] = max(doc_start[b][t], t - window + 1, 0), the first key that query t sees. starts and doc_start
// (B, T) i32; doc_start may be absent, which counts as zeros.
void window_starts(const Tensor& starts, const Tensor& doc_start, int64_t window, Stream& stream);

// Where the documents of a batch lie, of D at most: all i32 on the device.
struct DocumentTable {
  Tensor lengths;                 // (D) tokens of each document
  Tensor qkv_at, out_at, lse_at;  // (D + 1) first element of each document in tensors of these strides
};
struct DocumentStrides {
  int64_t qkv, out, lse;  // elements from one token to the next
};
// first_rows: AttentionConfig::first_rows.
void document_table(const DocumentTable& table, const Tensor& first_rows, const DocumentStrides& strides,
                    Stream& stream);

// Copies lse between its layout (B, H, T) and by_token (B*T, H), both f32 and contiguous.
void lse_to_tokens(const Tensor& by_token, const Tensor& lse, Stream& stream);
void lse_from_tokens(const Tensor& lse, const Tensor& by_token, Stream& stream);

}  // namespace ingot::cuda
