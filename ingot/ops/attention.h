// Tiled scaled dot-product attention (FlashAttention, Dao et al. 2022, arXiv:2205.14135):
//   out[t] = sum_s p[t,s] v[s],   p[t,:] = softmax over the visible s of scale * q[t] . k[s],
//   lse[t] = log sum over the visible s of exp(scale * q[t] . k[s]).
// No buffer of (T,S) elements exists; backward recomputes p from lse.
//
// Shapes: q, out, dq, d_out (B,T,H,D); k, v, dk, dv (B,S,K,D) with H % K == 0: head h reads kv head h /
// (H/K) (GQA, Ainslie et al. 2023, arXiv:2305.13245). All are f32, bf16 or f16, with any strides as long
// as the last dim is contiguous, so they may be views into one packed (B,T,(H+2K)*D) buffer. lse (B,H,T)
// f32, contiguous.
//
// Mask: if causal (REQUIRES: S >= T), query t sees keys s <= t + (S - T); otherwise it sees all S keys.
// With a window > 0 (sliding-window attention, Beltagy et al. 2020, arXiv:2004.05150; causal only), query t
// also sees no key s <= t + (S - T) - window: a query sees `window` keys, its own included. With doc_start
// (B,T) i32, contiguous, S == T and 0 <= doc_start[b][t] <= t, query t also sees no key before
// doc_start[b][t]. Keys outside a query's document do not change a bit of the result, even if they are NaN,
// except in cuDNN's kernels (ops/attention/attention_cudnn.h) and with a window that hides keys.
//
// With dropout (Srivastava et al. 2014; applied to the probabilities as in GPT-2), out[t] = sum_s
// keep[t,s] p[t,s] v[s], while lse still sums over all p. keep[t,s] is a pure function of the position
// of (t,s) in the global batch. It is 0 if
//   random_word(key, (((first_row + b) * Ha + first_head + h) * S + s) * T4 + t) < p * 2^32
// and 1 / (1 - p) otherwise. T4 is T rounded up to a multiple of 4; Ha is the number of heads of all
// ranks (H if the heads are not sharded). Queries of one key are adjacent, so kernels draw a register of
// them at a time.
//
// Products, softmax and sums are f32, but on a CPU with AMX, or with AVX512-BF16 from AMD, the products of
// bf16 heads whose D is a multiple of 32 are bf16 with f32 sums: p and its gradient are rounded to bf16 there
// (docs/numerics.md). The order of every sum follows from the shapes only, so the bits do not depend on the
// number of threads. dq of cuDNN is the exception (ops/deterministic.h).
#pragma once

#include "ingot/core/philox.h"
#include "ingot/core/stream.h"
#include "ingot/core/tensor.h"

namespace ingot {

struct AttentionDropout {
  float p = 0;                            // REQUIRES: in [0, 1)
  RandomKey key = {};                     // Purpose::kDropout, stream = the site in the model
  int64_t first_row = 0;                  // index of batch row 0 in the global batch
  Tensor place = {};                      // ops/dropout.h; its row is added to first_row
  int64_t first_head = 0, all_heads = 0;  // this rank has H of all_heads (0: H), from first_head on
};

// cu_seqlens has at most B * T / kLeastDocumentTokens documents: for more of them, cuDNN's kernels would have
// many blocks without work.
inline constexpr int64_t kLeastDocumentTokens = 64;

struct AttentionConfig {
  float scale = 0;  // REQUIRES: > 0; usually 1 / sqrt(D)
  bool is_causal = true;
  AttentionDropout dropout = {};  // REQUIRES: p == 0 while decoding (T = 1, S > 1)
  int64_t window = 0;             // 0: none. REQUIRES: is_causal
  // Empty, or doc_start said otherwise, for cuDNN on a device: (D + 1) i32, the row b * T + t where each
  // document begins, in order, and B * T from the end of the last one on. With it, no work is done between
  // documents.
  Tensor cu_seqlens = {};
};

struct AttentionShape {
  int64_t B, T, S, H, K, D;
};

// Return the f32 elements of scratch that the calls below need with num_threads() threads. On a CUDA
// device without cuDNN backward needs B * H * T and forward none; for cuDNN's kernels it has, with
// has_documents, what AttentionConfig::cu_seqlens needs if q, k and v lie in one buffer.
int64_t attention_forward_scratch(const AttentionShape& shape, Device device = Device::kCpu,
                                  bool has_documents = false);
int64_t attention_backward_scratch(const AttentionShape& shape, Device device = Device::kCpu,
                                   bool has_documents = false);

struct AttentionOperands {
  Tensor out = {}, lse = {};
  Tensor q = {}, k = {}, v = {};
  Tensor doc_start = {};  // absent: each batch row is one document
};
struct AttentionGradients {
  Tensor dq = {}, dk = {}, dv = {}, d_out = {};
};

// Overwrites out, which must not alias q, k or v, and lse, which may be absent (inference). scratch: f32,
// contiguous, at least attention_forward_scratch elements. The values of doc_start are checked on the CPU
// only.
void attention_forward(const AttentionOperands& t, const AttentionConfig& config, const Tensor& scratch,
                       Stream& stream);

// Overwrites dq, dk and dv, which must not alias the inputs or each other. out and lse are the outputs
// of forward. scratch: f32, contiguous, at least attention_backward_scratch elements.
void attention_backward(const AttentionGradients& d, const AttentionOperands& t,
                        const AttentionConfig& config, const Tensor& scratch, Stream& stream);

}  // namespace ingot
