// Tensor parallelism as the model sees it (Shoeybi et al. 2019, arXiv:1909.08053): `count` ranks share the
// heads, the feed-forward width and the vocabulary in equal, contiguous parts; this is the one of `rank`.
//
//   columns of y    q, k, v, up, gate: weight rows and bias of this rank's outputs; x is whole
//   rows of x       proj, down: weight columns of this rank's inputs; y is a sum over the ranks, to which the
//                   bias is added once
//   table rows      embedding and head
//
// Sequence parallelism (Korthikanti et al. 2022, arXiv:2205.05198): between those regions, in norms, dropout
// and the residual stream, each rank has the rows of N / count tokens.
#pragma once

#include <cstdint>

#include "ingot/nn/config.h"

namespace ingot {

struct TensorShare {
  int rank = 0, count = 1;
  bool splits_tokens = false;  // sequence parallelism

  // This rank's part of n things: as many, from the first on.
  int64_t part(int64_t n) const { return n / count; }
  int64_t first(int64_t n) const { return rank * part(n); }
  // This rank's part of the residual stream of N tokens. All of them where the ranks do not divide N
  // (generation).
  int64_t rows(int64_t N) const { return splits_tokens && N % count == 0 ? N / count : N; }
  int64_t first_row(int64_t N) const { return rows(N) < N ? rank * rows(N) : 0; }
  // Whether gradients of what all ranks have are sums over this rank's tokens alone.
  bool has_partial_gradients() const { return splits_tokens && count > 1; }

  // Throws a kUsage error that names the key, the rule and the nearest valid count unless `count` ranks can
  // share the model. REQUIRES: config resolved, its vocab set.
  void validate(const ModelConfig& config) const;
};

}  // namespace ingot
