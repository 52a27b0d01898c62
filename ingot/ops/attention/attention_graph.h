// Causal attention (ops/attention.h) as graphs of operations that cuDNN fuses into flash kernels
// (FlashAttention-2, Dao 2023, arXiv:2307.08691). Internal to ops.
#pragma once

#include <optional>
#include <tuple>

#include "ingot/core/tensor.h"
#include "ingot/ops/attention.h"
#include "ingot/ops/cuda/op_graph.h"

namespace ingot {

// What a graph depends on. Strides of (B,T,H,D) in elements, the last 1.
struct FusedAttention {
  using Strides = std::array<int64_t, 3>;  // of B, T and H

  DType dtype = DType::bf16;
  int64_t B = 0, T = 0, H = 0, K = 0, D = 0;
  float scale = 0;
  bool has_documents = false;
  Strides q = {}, k = {}, v = {}, out = {};
  Strides dq = {}, dk = {}, dv = {}, d_out = {};  // of backward

  auto fields() const {
    return std::tie(dtype, B, T, H, K, D, scale, has_documents, q, k, v, out, dq, dk, dv, d_out);
  }
  bool operator<(const FusedAttention& other) const { return fields() < other.fields(); }  // of a map's key
};

// Whether there are such kernels: bf16 or f16, causal, S = T, heads of at most 256 dims and a multiple of 8,
// no dropout (its numbers would be others than ours), every row of every operand on 16 bytes.
// `backward`: dq, dk, dv and d_out too.
std::optional<FusedAttention> fused_attention(const Tensor& q, const Tensor& k, const Tensor& v,
                                              const Tensor& out, const Tensor& doc_start,
                                              const AttentionConfig& config);
bool add_gradients(FusedAttention& problem, const Tensor& dq, const Tensor& dk, const Tensor& dv,
                   const Tensor& d_out);

// A graph, and which of its tensors are whose memory; kNone where there is none.
struct AttentionGraph {
  OpGraph graph;
  using Value = OpGraph::Value;
  Value q = OpGraph::kNone, k = q, v = q, out = q, lse = q, doc_start = q;
  Value d_out = q, dq = q, dk = q, dv = q;
  Value delta = q;   // (B,H,T) f32, contiguous: sum of out * d_out
  Value dq_sum = q;  // (B,H,T,D) f32, contiguous: dq as it is added up
};

// A masked score is the lowest f32: its exponential is 0, and of a row whose first scores are all masked what
// was added before the first real one is multiplied by 0.
AttentionGraph attention_forward_graph(const FusedAttention& problem);
AttentionGraph attention_backward_graph(const FusedAttention& problem);

// Bytes of scratch that plans for these graphs may take, delta and dq_sum included, whatever the dtype and
// the mask.
size_t fused_forward_bytes();
size_t fused_backward_bytes(const AttentionShape& shape);

}  // namespace ingot
