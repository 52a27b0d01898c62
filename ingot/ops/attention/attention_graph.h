// Causal attention (ops/attention.h) as operation graphs that cuDNN fuses into flash kernels
// (FlashAttention-2, Dao 2023, arXiv:2307.08691). Internal to ops.
#pragma once

#include <optional>
#include <tuple>

#include "ingot/core/tensor.h"
#include "ingot/ops/attention.h"
#include "ingot/ops/cuda/op_graph.h"

namespace ingot {

// Everything that a graph depends on. Strides are those of (B,T,H,D) in elements; the last one is 1.
struct FusedAttention {
  using Strides = std::array<int64_t, 3>;  // strides of B, T and H

  DType dtype = DType::bf16;
  int64_t B = 0, T = 0, H = 0, K = 0, D = 0;
  float scale = 0;
  int64_t window = 0;  // 0: none
  bool has_documents = false;
  bool masks_with_infinity = false;  // hidden scores are -inf, not the lowest number: the same results
  // If above 0, the graph's batch consists of so many documents of at most T tokens, some of which may be
  // empty, and the graph has no mask of documents. If 0, the batch consists of the B rows.
  int64_t documents = 0;
  Strides q = {}, k = {}, v = {}, out = {};
  Strides dq = {}, dk = {}, dv = {}, d_out = {};  // backward only

  auto fields() const {
    return std::tie(dtype, B, T, H, K, D, scale, window, has_documents, masks_with_infinity, documents, q, k,
                    v, out, dq, dk, dv, d_out);
  }
  bool operator<(const FusedAttention& other) const { return fields() < other.fields(); }  // for std::map
};

// fused_attention returns the problem if cuDNN has a kernel for it: bf16 or f16, causal, S = T, D at
// most 256 and a multiple of 8, no dropout (cuDNN's random numbers differ from Ingot's), and every row
// of every operand aligned to 16 bytes. Otherwise it returns nullopt. add_gradients adds the strides of
// dq, dk, dv and d_out for backward; it returns false if their rows are not aligned.
std::optional<FusedAttention> fused_attention(const AttentionOperands& t, const AttentionConfig& config);
// Returns true if cuDNN of this version (cudnnGetVersion) computes the problem's gradients: versions up to
// 9.15.0 get them wrong without a padding mask where T is no multiple of 128, and one query has no backward
// kernel.
bool has_right_gradients(const FusedAttention& problem, size_t version);
bool add_gradients(FusedAttention& problem, const AttentionGradients& d);
// Makes the batch of the graph the documents of AttentionConfig::cu_seqlens, so that nothing is computed
// between documents. Returns false, and changes nothing, if the graph must keep the mask: without cu_seqlens,
// with a cuDNN of
// 9.15.0 or older, where D is no multiple of 16, or with strides or a size that offsets in 32 bits
// cannot express. Forward and backward decide alike if their strides are alike.
bool take_documents(FusedAttention& problem, const AttentionConfig& config, size_t version);

// A graph, and its values for the operands and results; kNone if the graph does not use one.
struct AttentionGraph {
  OpGraph graph;
  using Value = OpGraph::Value;
  Value q = OpGraph::kNone, k = q, v = q, out = q, lse = q, doc_start = q;
  Value d_out = q, dq = q, dk = q, dv = q;
  Value delta = q;   // (B,H,T) f32, contiguous: sum of out * d_out
  Value dq_sum = q;  // (B,H,T,D) f32, contiguous: dq before it is rounded
  // With documents, where lse and delta are (B*T,H) and dq_sum has the strides of dq:
  Value lengths = q;             // (documents) i32: tokens of each
  Value qkv_at = q;              // (documents + 1) i32: first element of each in q, k, v and their gradients
  Value out_at = q, lse_at = q;  // the same in out and d_out, and in lse and delta
  Value dk_heads = q, dv_heads = q;  // if H > K: dk and dv of every query head, which dk and dv sum
};

// A masked score is the lowest f32 (or -inf), so its exponential is 0. If the first scores of a row are all
// masked, the terms added before the first visible score are later multiplied by 0.
AttentionGraph attention_forward_graph(const FusedAttention& problem);
AttentionGraph attention_backward_graph(const FusedAttention& problem);

// Return the bytes of scratch that plans for these graphs may use, including delta and dq_sum, for any
// dtype and mask. has_documents: for take_documents too, with q, k and v in one buffer.
size_t fused_forward_bytes(const AttentionShape& shape, bool has_documents);
size_t fused_backward_bytes(const AttentionShape& shape, bool has_documents);

}  // namespace ingot
