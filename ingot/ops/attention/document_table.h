// Tables in device memory that cuDNN's attention needs if its batch consists of documents. Defined in builds
// with CUDA.
#pragma once

#include "ingot/core/stream.h"
#include "ingot/core/tensor.h"

namespace ingot::cuda {

// DocumentTable holds the lengths and places of the documents of a batch, at most D of them. All tensors
// are i32 on the device.
struct DocumentTable {
  Tensor lengths;                 // (D) tokens of each document
  Tensor qkv_at, out_at, lse_at;  // (D + 1) first element of each document in tensors of these strides
};
struct DocumentStrides {
  int64_t qkv, out, lse;  // elements from one token to the next
};
// Fills the table. cu_seqlens: AttentionConfig::cu_seqlens.
void document_table(const DocumentTable& table, const Tensor& cu_seqlens, const DocumentStrides& strides,
                    Stream& stream);

// Copies lse between its layout (B, H, T) and by_token (B*T, H), both f32 and contiguous.
void lse_to_tokens(const Tensor& by_token, const Tensor& lse, Stream& stream);
void lse_from_tokens(const Tensor& lse, const Tensor& by_token, Stream& stream);

}  // namespace ingot::cuda
