// Scaled dot-product attention in tiles (FlashAttention, Dao et al. 2022, arXiv:2205.14135):
//   out[t] = sum_s p[t,s] v[s],   p[t,:] = softmax over the visible s of scale * q[t] . k[s],
//   lse[t] = log sum over the visible s of exp(scale * q[t] . k[s]).
// No buffer of (T,S) elements exists; backward recomputes p from lse.
//
// Shapes: q, out, dq, d_out (B,T,H,D); k, v, dk, dv (B,S,K,D) with H % K == 0: head h reads kv head h / (H/K)
// (GQA, Ainslie et al. 2023, arXiv:2305.13245). All f32, bf16 or f16, any strides with the last dim
// contiguous, so views into one packed (B,T,(H+2K)*D) buffer do. lse (B,H,T) f32, contiguous.
//
// Visible: causal (REQUIRES: S >= T), query t sees keys s <= t + (S - T); else all S keys. With doc_start,
// (B,T) i32, contiguous, S == T and 0 <= doc_start[b][t] <= t, it also sees no key before doc_start[b][t].
// Keys outside a query's document are not read for it: the result does not depend on them by a bit, NaN or
// not.
//
// With dropout (Srivastava et al. 2014, of the probabilities as in GPT-2), out[t] = sum_s keep[t,s] p[t,s]
// v[s]; lse is that of all p. keep[t,s] is a pure function of where (t,s) stands in the global batch: 0 when
//   random_word(key, (((first_row + b) * Ha + first_head + h) * S + s) * T4 + t) < p * 2^32,
// T4 = T rounded up to 4s, Ha = H or, where ranks share the heads, that of all; else it is 1 / (1 - p).
// Queries of one key stand side by side so that kernels get a register of them at a time.
//
// Products, softmax and sums are f32. Every element is summed in an order that follows from the shapes
// alone, so the bits do not depend on the number of threads.
#pragma once

#include "ingot/core/philox.h"
#include "ingot/core/stream.h"
#include "ingot/core/tensor.h"

namespace ingot {

struct AttentionDropout {
  float p = 0;                            // REQUIRES: in [0, 1)
  RandomKey key = {};                     // Purpose::kDropout, stream = the site in the model
  int64_t first_row = 0;                  // index of batch row 0 in the global batch
  int64_t first_head = 0, all_heads = 0;  // of all_heads (0: H), where H of them are here
};

struct AttentionConfig {
  float scale = 0;  // REQUIRES: > 0; usually 1 / sqrt(D)
  bool is_causal = true;
  AttentionDropout dropout = {};  // none where one query meets several keys (T = 1, S > 1)
};

struct AttentionShape {
  int64_t B, T, S, H, K, D;
};

// f32 elements of scratch that the calls below need with num_threads() threads; on a CUDA device backward
// needs B * H * T, forward none.
int64_t attention_forward_scratch(const AttentionShape& shape, Device device = Device::kCpu);
int64_t attention_backward_scratch(const AttentionShape& shape, Device device = Device::kCpu);

// out must not alias q, k or v. With lse absent, it is not kept (inference). With doc_start absent, there is
// one document. scratch: f32, contiguous, attention_forward_scratch elements or more. A doc_start on a device
// is not checked.
void attention_forward(const Tensor& out, const Tensor& lse, const Tensor& q, const Tensor& k,
                       const Tensor& v, const Tensor& doc_start, const AttentionConfig& config,
                       const Tensor& scratch, Stream& stream);

// Overwrites dq, dk and dv, which must not alias the inputs or each other. out and lse are what forward
// wrote. scratch: f32, contiguous, attention_backward_scratch elements or more.
void attention_backward(const Tensor& dq, const Tensor& dk, const Tensor& dv, const Tensor& d_out,
                        const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& out,
                        const Tensor& lse, const Tensor& doc_start, const AttentionConfig& config,
                        const Tensor& scratch, Stream& stream);

}  // namespace ingot
