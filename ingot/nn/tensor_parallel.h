// Tensor parallelism as the model sees it (Shoeybi et al. 2019, arXiv:1909.08053). The heads, the
// feed-forward width and the vocabulary are sharded over `count` ranks in equal, contiguous slices; this
// rank is `rank`.
//
//   columns of y    q, k, v, up, gate: weight rows and bias of this rank's outputs; x is whole. If there are
//                   more ranks than key-value heads, `count` is a multiple of them and neighbouring ranks
//                   hold the same head of k and v; each computes the part of their gradients that comes from
//                   its own heads of q, and a ShardSum (parallel/shard_sum.h) sums these
//   rows of x       proj, down: weight columns of this rank's inputs; y is a sum over the ranks, to which the
//                   bias is added once
//   table rows      embedding and head
//
// Sequence parallelism (Korthikanti et al. 2022, arXiv:2205.05198): outside those linears, in norms,
// dropout and the residual stream, each rank holds the rows of N / count tokens.
#pragma once

#include <algorithm>
#include <cstdint>

#include "ingot/nn/config.h"

namespace ingot {

struct TensorParallel {
  int rank = 0, count = 1;
  bool splits_tokens = false;  // sequence parallelism

  // This rank's slice of n things: its length and its start.
  int64_t slice(int64_t n) const { return n / count; }
  int64_t first(int64_t n) const { return rank * slice(n); }
  // The same for n things of which `least` stay together. If these are fewer groups than ranks, `holders`
  // neighbouring ranks hold the same one.
  int64_t slice(int64_t n, int64_t least) const { return std::max(n / count, least); }
  int64_t first(int64_t n, int64_t least) const { return rank * n / count / least * least; }
  int holders(int64_t n, int64_t least) const {
    return static_cast<int>(std::max<int64_t>(1, count * least / n));
  }
  // This rank's rows of the residual stream of N tokens: their number and the first. A rank has all N rows
  // if count does not divide N (generation).
  int64_t rows(int64_t N) const { return splits_tokens && N % count == 0 ? N / count : N; }
  int64_t first_row(int64_t N) const { return rows(N) < N ? rank * rows(N) : 0; }
  // True if gradients of parameters that all ranks hold are sums over this rank's tokens only.
  bool has_partial_gradients() const { return splits_tokens && count > 1; }

  // Throws a kUsage error that names the key, the rule and the nearest valid count if the model cannot be
  // sharded over `count` ranks. REQUIRES: config is resolved and its vocab set.
  void validate(const ModelConfig& config) const;
};

}  // namespace ingot
