#include <cmath>
#include <limits>
#include <type_traits>

#include "ingot/ops/attention/attention_bf16.h"
#include "ingot/ops/attention/attention_kernels.h"
#include "ingot/ops/attention/attention_softmax.h"

namespace ingot::cpu {
namespace {

using tile::Block;
using tile::Matrix;
using tile::Start;

constexpr int64_t kQueries = 64;  // queries of a tile

// The products in f32: the working memory of one thread. k and v hold the current kv head.
struct F32Products {
  static constexpr int64_t kKeys = 96;  // keys of a tile
  Matrix k, v;                          // (S, D)
  Matrix q;                             // (kQueries, D)
  Matrix q_dm;                          // (D, kQueries)
  Matrix s;                    // (kKeys, kQueries) scores, then probabilities without the factor 1/sum
  Matrix keep;                 // (kKeys, kQueries) dropout factors
  Matrix out;                  // (kQueries, D)
  float *max, *sum, *rescale;  // (kQueries)

  F32Products(ScratchLayout& layout, const AttentionShape& shape)
      : k(layout.matrix(shape.S, shape.D)),
        v(layout.matrix(shape.S, shape.D)),
        q(layout.matrix(kQueries, shape.D)),
        q_dm(layout.matrix(shape.D, kQueries)),
        s(layout.matrix(kKeys, kQueries)),
        keep(layout.matrix(kKeys, kQueries)),
        out(layout.matrix(kQueries, shape.D)),
        max(layout.take(kQueries)),
        sum(layout.take(kQueries)),
        rescale(layout.take(kQueries)) {}

  template <typename T>
  void load_keys(HeadView<T> keys, HeadView<T> values, int64_t b, int64_t kv,
                 const AttentionShape& shape) const {
    tile::load_rows(k, keys.at(b, 0, kv), keys.time_stride, shape.S, shape.D);
    tile::load_rows(v, values.at(b, 0, kv), values.time_stride, shape.S, shape.D);
  }
  template <typename T>
  void load_queries(const T* from, int64_t stride, int64_t m, int64_t D) const {
    tile::load_rows(q, from, stride, m, D);
    tile::transpose_rows(q_dm, q, m, D);
  }
  void compute_scores(const Block& block, int64_t first_key, int64_t D) const {
    tile::score_product(s, k.from_row(first_key), q_dm, block, D);
  }
  // out = rescale * out + p v for one key tile; s holds p.
  void add_values(const Block& block, int64_t first_key, bool is_first, int64_t D) const {
    tile::product<true>(
        is_first ? Start::kZero : Start::kScaled, out, s, v.from_row(first_key), {block.m, D},
        [&](int64_t, int64_t q_end) {
          return tile::Span{0, block.visible_keys(q_end - 1)};
        },
        rescale);
  }
  void finish(int64_t, int64_t) const {}
};

#ifdef INGOT_ATTENTION_BF16
// The products on bf16 units. Probabilities are rounded to bf16 for the product with v, but their sum is not.
struct Bf16Products {
  static constexpr int64_t kKeys = 128;
  tile::Bf16Unit unit = tile::bf16_unit();
  amx::Tiles tiles{unit == tile::Bf16Unit::kAmx};
  tile::Bf16Rows k;            // (S, D) and a block behind it, which products read and do not use
  tile::Bf16Rows v_dm, tail;   // (D, S), and a copy (D, kKeys) of its last columns
  tile::Bf16Rows q;            // (kQueries, D)
  tile::Bf16Pairs q_pairs, p;  // (D/2, kQueries), (kKeys/2, kQueries)
  Matrix s, keep;              // (kKeys, kQueries)
  Matrix out_dm, out;          // (D, kQueries), (kQueries, D)
  float *max, *sum, *rescale;  // (kQueries)

  Bf16Products(ScratchLayout& layout, const AttentionShape& shape)
      : k(tile::bf16_rows(layout, shape.S + tile::kBlock, shape.D)),
        v_dm(tile::bf16_rows(layout, shape.D, shape.S)),
        tail(tile::bf16_rows(layout, shape.D, kKeys)),
        q(tile::bf16_rows(layout, kQueries, shape.D)),
        q_pairs(tile::bf16_pairs(layout, shape.D, kQueries)),
        p(tile::bf16_pairs(layout, kKeys, kQueries)),
        s(layout.matrix(kKeys, kQueries)),
        keep(layout.matrix(kKeys, kQueries)),
        out_dm(layout.matrix(shape.D, kQueries)),
        out(layout.matrix(kQueries, shape.D)),
        max(layout.take(kQueries)),
        sum(layout.take(kQueries)),
        rescale(layout.take(kQueries)) {}

  void load_keys(HeadView<bf16> keys, HeadView<bf16> values, int64_t b, int64_t kv,
                 const AttentionShape& shape) const {
    tile::copy_rows(k, tile::bits(values.at(b, 0, kv)), values.time_stride, shape.S, shape.D);
    tile::transpose_rows(v_dm, k, shape.S, shape.D);
    tile::copy_rows(k, tile::bits(keys.at(b, 0, kv)), keys.time_stride, shape.S, shape.D);
  }
  void load_queries(const bf16* from, int64_t stride, int64_t m, int64_t D) const {
    tile::copy_rows(q, tile::bits(from), stride, m, D);
    tile::pair_columns(q_pairs, q, m, D);
  }
  void compute_scores(const Block& block, int64_t first_key, int64_t D) const {
    tile::score_product(unit, s, k.at(first_key, 0), q_pairs, block, D);
  }
  void add_values(const Block& block, int64_t first_key, bool is_first, int64_t D) const {
    tile::round_to_pairs(p, s, block.n, block.m);
    for (int64_t d = 0; d < D && !is_first; ++d)
      for (int64_t i = 0; i < block.m; i += tile::kLanes)
        vec::store(out_dm.row(d) + i, vec::load(out_dm.row(d) + i) * vec::load(rescale + i));
    tile::sum_over_keys(unit, out_dm, is_first, tile::padded_columns(v_dm, tail, first_key, block.n, D), p,
                        block, D);
  }
  void finish(int64_t m, int64_t D) const {
    tile::transpose_rows(out, out_dm, D, tile::round_up(m, tile::kBlock));
  }
};
#endif

// Computes out, max and sum of `ws` from its queries for one tile of queries. keep is null without dropout.
template <typename Products>
void forward_tile(const AttentionProblem& p, const Products& ws, const QueryTile& tile,
                  const AttentionKeep* keep) {
  const int64_t D = p.shape.D;
  std::fill_n(ws.max, kQueries, -std::numeric_limits<float>::infinity());
  std::fill_n(ws.sum, kQueries, 0.0f);
  for_each_key_tile(p, tile, Products::kKeys, [&](int64_t first_key, const Block& block) {
    ws.compute_scores(block, first_key, D);
    for (int64_t i = 0; i < block.m; i += tile::kPanel)
      tile::softmax_panel(ws.s, block, i, p.scale, ws.max, ws.sum, ws.rescale);
    if (keep) {
      keep->fill(ws.keep, block, tile.begin, first_key);
      multiply_visible(ws.s, ws.keep, block);
    }
    ws.add_values(block, first_key, first_key == tile.first_key, D);
  });
  ws.finish(tile.queries(), D);
}

template <typename Products>
int64_t scratch_of(const AttentionShape& shape) {
  ScratchLayout layout(nullptr);
  Products(layout, shape);
  return layout.used();
}

// A unit of work is a pair of query chunks of one head, one early and one late, so that all units cost
// the same under a causal mask.
template <typename Products, typename T>
void run_forward(const AttentionProblem& p, const AttentionViews<T>& t, float* scratch) {
  const AttentionShape& shape = p.shape;
  const int64_t chunks = (shape.T + kQueries - 1) / kQueries, pairs = (chunks + 1) / 2;
  const int64_t thread_scratch = attention_forward_scratch(shape, 1);

  const auto run_chunk = [&](const Products& ws, int64_t b, int64_t h, int64_t chunk) {
    const int64_t begin = chunk * kQueries, end = std::min(shape.T, begin + kQueries);
    const std::optional<AttentionKeep> keep = make_keep(p, b, h);
    for_each_query_tile(p, b, begin, end, [&](const QueryTile& tile) {
      const int64_t m = tile.queries(), D = shape.D;
      ws.load_queries(t.q.at(b, tile.begin, h), t.q.time_stride, m, D);
      forward_tile(p, ws, tile, keep ? &*keep : nullptr);
      for (int64_t i = 0; i < m; ++i) ws.rescale[i] = 1.0f / ws.sum[i];
      tile::store_rows(t.out.at(b, tile.begin, h), t.out.time_stride, ws.out, m, D, 1.0f, ws.rescale);
      if (!t.lse) return;
      float* row = t.lse + (b * shape.H + h) * shape.T + tile.begin;
      for (int64_t i = 0; i < m; ++i) row[i] = ws.max[i] * p.scale + std::log(ws.sum[i]);
    });
  };

  parallel_ranges(shape.B * shape.H * pairs, 1, [&](int thread, int64_t unit_begin, int64_t unit_end) {
    ScratchLayout layout(scratch + thread * thread_scratch);
    const Products ws(layout, shape);
    int64_t loaded = -1;
    for (int64_t unit = unit_begin; unit < unit_end; ++unit) {
      const int64_t b = unit / pairs / shape.H, h = unit / pairs % shape.H, pair = unit % pairs;
      const int64_t kv = p.kv_head(h);
      if (std::exchange(loaded, b * shape.K + kv) != b * shape.K + kv) ws.load_keys(t.k, t.v, b, kv, shape);
      run_chunk(ws, b, h, pair);
      if (chunks - 1 - pair != pair) run_chunk(ws, b, h, chunks - 1 - pair);
    }
  });
}

}  // namespace

int64_t attention_forward_scratch(const AttentionShape& shape, int threads) {
  int64_t own = scratch_of<F32Products>(shape);
#ifdef INGOT_ATTENTION_BF16
  if (tile::fits_bf16_units(shape)) own = std::max(own, scratch_of<Bf16Products>(shape));
#endif
  return own * threads;
}

template <typename T>
void attention_forward(const AttentionProblem& p, const AttentionViews<T>& t, float* scratch) {
#ifdef INGOT_ATTENTION_BF16
  if constexpr (std::is_same_v<T, bf16>) {
    if (tile::fits_bf16_units(p.shape)) return run_forward<Bf16Products>(p, t, scratch);
  }
#endif
  run_forward<F32Products>(p, t, scratch);
}

template void attention_forward(const AttentionProblem&, const AttentionViews<float>&, float*);
template void attention_forward(const AttentionProblem&, const AttentionViews<bf16>&, float*);
template void attention_forward(const AttentionProblem&, const AttentionViews<f16>&, float*);

}  // namespace ingot::cpu
