// The interface between attention.cpp and the CPU kernels: one checked call, as pointers and strides.
#pragma once

#include <optional>
#include <span>

#include "ingot/core/parallel.h"
#include "ingot/ops/attention.h"
#include "ingot/ops/attention/attention_tile.h"
#include "ingot/ops/attention/head_view.h"
#include "ingot/ops/dropout.h"
#include "ingot/ops/random_blocks.h"

namespace ingot::cpu {

struct AttentionProblem {
  AttentionShape shape;
  float scale;
  bool is_causal;
  const int32_t* doc_start;  // (B,T) or null
  AttentionDropout dropout;
  int64_t window;  // 0: none

  int64_t kv_head(int64_t h) const { return h / (shape.H / shape.K); }
};

// Queries [begin, end) that have the same first key, apart from a window; together they see keys in
// [first_key, key_end).
struct QueryTile {
  int64_t begin, end, first_key, key_end;

  int64_t queries() const { return end - begin; }
};

// Calls f(QueryTile) for rows [begin, end) of batch row b, split where documents change.
template <typename F>
void for_each_query_tile(const AttentionProblem& p, int64_t b, int64_t begin, int64_t end, F&& f) {
  const int32_t* starts = p.doc_start ? p.doc_start + b * p.shape.T : nullptr;
  for (int64_t t = begin; t < end;) {
    int64_t stop = starts ? t + 1 : end;
    while (stop < end && starts[stop] == starts[t]) ++stop;
    const int64_t past = p.shape.S - p.shape.T;
    const int64_t key_end = p.is_causal ? stop + past : p.shape.S;
    const int64_t window_begin = p.window > 0 ? t + past - p.window + 1 : 0;  // of the first query
    f(QueryTile{t, stop, std::max<int64_t>(starts ? starts[t] : 0, window_begin), key_end});
    t = stop;
  }
}

// Calls f(first key, Block) for the key tiles of a query tile, the first of which has a key that each query
// sees. Tiles begin at the query tile's first key, so the order of a query's sums does not depend on the
// position of its document.
template <typename F>
void for_each_key_tile(const AttentionProblem& p, const QueryTile& tile, int64_t tile_keys, F&& f) {
  for (int64_t s = tile.first_key; s < tile.key_end; s += tile_keys) {
    const int64_t diagonal =
        p.is_causal ? s - (tile.begin + p.shape.S - p.shape.T) : -(p.shape.S + p.shape.T);
    f(s, tile::Block{tile.queries(), std::min(tile_keys, tile.key_end - s), diagonal, p.window});
  }
}

// The dropout factors of one head's probabilities, tile by tile.
class AttentionKeep {
 public:
  AttentionKeep(const AttentionProblem& p, int64_t b, int64_t h)
      : random_(p.dropout.key),
        rule_(p.dropout.p),
        row_words_(tile::round_up(p.shape.T, 4)),
        first_word_(((p.dropout.first_row + b) * (p.dropout.all_heads ? p.dropout.all_heads : p.shape.H) +
                     p.dropout.first_head + h) *
                    p.shape.S * row_words_) {}

  // keep (keys, queries) = the factors of the keys from first_key on and the queries from first_query
  // on. Fills at least the entries in which the query sees the key.
  void fill(tile::Matrix keep, const tile::Block& block, int64_t first_query, int64_t first_key) const;

 private:
  RandomBlocks random_;
  DropoutRule rule_;
  int64_t row_words_, first_word_;
};

// s = s * keep, over the entries that AttentionKeep::fill writes.
void multiply_visible(tile::Matrix s, tile::Matrix keep, const tile::Block& block);

// Returns the factors of head h of batch row b; nullopt without dropout.
inline std::optional<AttentionKeep> make_keep(const AttentionProblem& p, int64_t b, int64_t h) {
  return p.dropout.p > 0 ? std::optional<AttentionKeep>(std::in_place, p, b, h) : std::nullopt;
}

// Allocates buffers from the scratch; with a null base it only counts elements.
class ScratchLayout {
 public:
  explicit ScratchLayout(float* base) : base_(base) {}
  tile::Matrix matrix(int64_t rows, int64_t columns) {
    const int64_t ld = tile::leading_dim(columns);
    return {take(rows * ld), ld};
  }
  float* take(int64_t count) {
    float* place = base_ ? base_ + used_ : nullptr;
    used_ += tile::round_up(count, 16);
    return place;
  }
  int64_t used() const { return used_; }

 private:
  float* base_;
  int64_t used_ = 0;
};

// Return the elements of scratch, f32, for `threads` threads. In the kernels below T is float, bf16 or f16.
int64_t attention_forward_scratch(const AttentionShape& shape, int threads);
int64_t attention_backward_scratch(const AttentionShape& shape, int threads);
int64_t attention_decode_scratch(const AttentionShape& shape);

template <typename T>
struct AttentionViews {
  HeadView<T> out, q, k, v;
  float* lse = nullptr;  // (B,H,T) or null
};
template <typename T>
void attention_forward(const AttentionProblem& p, const AttentionViews<T>& t, float* scratch);

// The keys [begin, end) of batch row `row` of k and v, which one query sees; none if end == 0.
struct DecodeKeys {
  int64_t row = 0, begin = 0, end = 0;
};
// Computes one query per batch row (T = 1), each over its own keys; reads K and V once. REQUIRES: every end
// is at most shape.S. A query's result depends on its number of keys, and on no other query. out is 0 if
// there are none.
template <typename T>
void attention_decode(const AttentionProblem& p, const AttentionViews<T>& t, std::span<const DecodeKeys> keys,
                      float* scratch);

template <typename T>
struct AttentionGradients {
  HeadView<T> dq, dk, dv, d_out, out;
  const float* lse;
};
template <typename T>
void attention_backward(const AttentionProblem& p, const AttentionGradients<T>& g, HeadView<T> q,
                        HeadView<T> k, HeadView<T> v, float* scratch);

}  // namespace ingot::cpu
