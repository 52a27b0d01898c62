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
constexpr int64_t kKeys = 64;
constexpr int64_t kUnits = 16;  // minimum number of units of work, if there are enough heads

// The products in f32: the working memory of one thread. k and v hold the current kv head.
struct F32Gradients {
  Matrix k, v;            // (S, D)
  Matrix dk, dv;          // (S, D) sums; dk without the factor scale
  Matrix q, d_out, dq;    // (kQueries, D); dq without the factor scale
  Matrix q_dm, d_out_dm;  // (D, kQueries)
  Matrix p, dp;           // (kKeys, kQueries) scores, then p; dp, then ds
  Matrix keep;            // (kKeys, kQueries) dropout factors
  float *lse, *delta;     // (kQueries)

  F32Gradients(ScratchLayout& layout, const AttentionShape& shape)
      : k(layout.matrix(shape.S, shape.D)),
        v(layout.matrix(shape.S, shape.D)),
        dk(layout.matrix(shape.S, shape.D)),
        dv(layout.matrix(shape.S, shape.D)),
        q(layout.matrix(kQueries, shape.D)),
        d_out(layout.matrix(kQueries, shape.D)),
        dq(layout.matrix(kQueries, shape.D)),
        q_dm(layout.matrix(shape.D, kQueries)),
        d_out_dm(layout.matrix(shape.D, kQueries)),
        p(layout.matrix(kKeys, kQueries)),
        dp(layout.matrix(kKeys, kQueries)),
        keep(layout.matrix(kKeys, kQueries)),
        lse(layout.take(kQueries)),
        delta(layout.take(kQueries)) {}

  template <typename T>
  void load_keys(HeadView<T> keys, HeadView<T> values, int64_t b, int64_t kv,
                 const AttentionShape& shape) const {
    tile::load_rows(k, keys.at(b, 0, kv), keys.time_stride, shape.S, shape.D);
    tile::load_rows(v, values.at(b, 0, kv), values.time_stride, shape.S, shape.D);
  }
  template <typename T>
  void load_queries(HeadView<T> queries, HeadView<T> d_outs, int64_t b, int64_t t, int64_t h, int64_t m,
                    int64_t D) const {
    tile::load_rows(q, queries.at(b, t, h), queries.time_stride, m, D);
    tile::load_rows(d_out, d_outs.at(b, t, h), d_outs.time_stride, m, D);
    tile::transpose_rows(q_dm, q, m, D);
    tile::transpose_rows(d_out_dm, d_out, m, D);
  }
  // p = k q^T and dp = v d_out^T.
  void compute_scores(const Block& block, int64_t first_key, int64_t D) const {
    tile::score_product(p, k.from_row(first_key), q_dm, block, D);
    tile::score_product(dp, v.from_row(first_key), d_out_dm, block, D);
  }
  void finish_scores(const Block& block, float scale, bool has_dropout) const {
    for (int64_t i = 0; i < block.m; i += tile::kPanel)
      tile::softmax_gradient_panel(p, dp, block, i, scale, lse, delta);
    if (has_dropout) multiply_visible(p, keep, block);
  }
  void add_key_gradients(const Block& block, int64_t first_key, int64_t D) const {
    const auto seen_by = [&](int64_t j, int64_t) { return tile::Span{block.first_query(j), block.m}; };
    tile::product<false>(Start::kAdd, dv.from_row(first_key), p, d_out, {block.n, D}, seen_by);
    tile::product<false>(Start::kAdd, dk.from_row(first_key), dp, q, {block.n, D}, seen_by);
  }
  void add_query_gradients(const Block& block, int64_t first_key, bool is_first, int64_t D) const {
    tile::product<true>(is_first ? Start::kZero : Start::kAdd, dq, dp, k.from_row(first_key), {block.m, D},
                        [&](int64_t, int64_t q_end) {
                          return tile::Span{0, block.visible_keys(q_end - 1)};
                        });
  }
  void finish_queries(int64_t, int64_t) const {}
};

#ifdef INGOT_ATTENTION_BF16
// The products on bf16 units, for which p and ds are rounded to bf16.
struct Bf16Gradients {
  tile::Bf16Unit unit = tile::bf16_unit();
  amx::Tiles tiles{unit == tile::Bf16Unit::kAmx};
  tile::Bf16Rows k, v;        // (S, D) and a block behind it, which products read and do not use
  tile::Bf16Rows k_dm, tail;  // (D, S), and a copy (D, kKeys) of its last columns
  Matrix dk, dv;              // (S, D) sums; dk without the factor scale
  tile::Bf16Rows q, d_out;    // (kQueries, D)
  tile::Bf16Pairs q_columns, d_out_columns;  // (D/2, kQueries)
  tile::Bf16Pairs q_pairs, d_out_pairs;      // (kQueries/2, D)
  Matrix s, dp, keep;                        // (kKeys, kQueries)
  tile::Bf16Rows p, ds;                      // (kKeys, kQueries)
  tile::Bf16Pairs ds_pairs;                  // (kKeys/2, kQueries)
  Matrix dq_dm, dq;                          // (D, kQueries), (kQueries, D); without the factor scale
  float *lse, *delta;                        // (kQueries)

  Bf16Gradients(ScratchLayout& layout, const AttentionShape& shape)
      : k(tile::bf16_rows(layout, shape.S + tile::kBlock, shape.D)),
        v(tile::bf16_rows(layout, shape.S + tile::kBlock, shape.D)),
        k_dm(tile::bf16_rows(layout, shape.D, shape.S)),
        tail(tile::bf16_rows(layout, shape.D, kKeys)),
        dk(layout.matrix(shape.S, shape.D)),
        dv(layout.matrix(shape.S, shape.D)),
        q(tile::bf16_rows(layout, kQueries, shape.D)),
        d_out(tile::bf16_rows(layout, kQueries, shape.D)),
        q_columns(tile::bf16_pairs(layout, shape.D, kQueries)),
        d_out_columns(tile::bf16_pairs(layout, shape.D, kQueries)),
        q_pairs(tile::bf16_pairs(layout, kQueries, shape.D)),
        d_out_pairs(tile::bf16_pairs(layout, kQueries, shape.D)),
        s(layout.matrix(kKeys, kQueries)),
        dp(layout.matrix(kKeys, kQueries)),
        keep(layout.matrix(kKeys, kQueries)),
        p(tile::bf16_rows(layout, kKeys, kQueries)),
        ds(tile::bf16_rows(layout, kKeys, kQueries)),
        ds_pairs(tile::bf16_pairs(layout, kKeys, kQueries)),
        dq_dm(layout.matrix(shape.D, kQueries)),
        dq(layout.matrix(kQueries, shape.D)),
        lse(layout.take(kQueries)),
        delta(layout.take(kQueries)) {}

  void load_keys(HeadView<bf16> keys, HeadView<bf16> values, int64_t b, int64_t kv,
                 const AttentionShape& shape) const {
    tile::copy_rows(k, tile::bits(keys.at(b, 0, kv)), keys.time_stride, shape.S, shape.D);
    tile::copy_rows(v, tile::bits(values.at(b, 0, kv)), values.time_stride, shape.S, shape.D);
    tile::transpose_rows(k_dm, k, shape.S, shape.D);
  }
  void load_queries(HeadView<bf16> queries, HeadView<bf16> d_outs, int64_t b, int64_t t, int64_t h, int64_t m,
                    int64_t D) const {
    tile::copy_rows(q, tile::bits(queries.at(b, t, h)), queries.time_stride, m, D);
    tile::copy_rows(d_out, tile::bits(d_outs.at(b, t, h)), d_outs.time_stride, m, D);
    tile::pair_columns(q_columns, q, m, D);
    tile::pair_columns(d_out_columns, d_out, m, D);
    tile::pair_rows(q_pairs, q, m, D);
    tile::pair_rows(d_out_pairs, d_out, m, D);
  }
  // s = k q^T and dp = v d_out^T.
  void compute_scores(const Block& block, int64_t first_key, int64_t D) const {
    tile::score_product(unit, s, k.at(first_key, 0), q_columns, block, D);
    tile::score_product(unit, dp, v.at(first_key, 0), d_out_columns, block, D);
  }
  // The results are rounded when they are computed, straight into the layouts of the products that read them.
  void finish_scores(const Block& block, float scale, bool has_dropout) const {
    for (int64_t i = 0; i < block.m; i += tile::kPanel) {
      const int64_t keys = tile::mask_hidden(s, block, i);
      for (int64_t w = i; w < i + tile::kPanel; w += tile::kLanes)
        round_gradients(block, w, keys, scale, has_dropout);
    }
  }
  void add_key_gradients(const Block& block, int64_t first_key, int64_t D) const {
    tile::sum_over_queries(unit, dv.from_row(first_key), p, d_out_pairs, block, D);
    tile::sum_over_queries(unit, dk.from_row(first_key), ds, q_pairs, block, D);
  }
  void add_query_gradients(const Block& block, int64_t first_key, bool is_first, int64_t D) const {
    const tile::Bf16Rows keys = tile::padded_columns(k_dm, tail, first_key, block.n, D);
    tile::sum_over_keys(unit, dq_dm, is_first, keys, ds_pairs, block, D);
  }
  void finish_queries(int64_t m, int64_t D) const {
    tile::transpose_rows(dq, dq_dm, D, tile::round_up(m, tile::kBlock));
  }

 private:
  // Sets 16 queries of p, ds and ds_pairs: p = exp(scale s - lse) and ds = p (dp - delta) for the first
  // `keys` keys, 0 for the others and for queries from block.m on.
  void round_gradients(const Block& block, int64_t query, int64_t keys, float scale, bool has_dropout) const {
    const __mmask16 lanes = tile::first_lanes(block.m - query);
    const vec::Vec lses = vec::load(lse + query), deltas = vec::load(delta + query);
    const auto round_key = [&](int64_t key) {
      if (key >= keys) {
        tile::store_lanes(p.row(key) + query, _mm256_setzero_si256());
        tile::store_lanes(ds.row(key) + query, _mm256_setzero_si256());
        return _mm256_setzero_si256();
      }
      vec::Vec probability = tile::exp_of_negative(vec::load(s.row(key) + query) * scale - lses);
      const __m256i d = tile::rounded(probability * (vec::load(dp.row(key) + query) - deltas), lanes);
      if (has_dropout) {
        // A hidden key has no factor, and its probability is 0.
        const __mmask16 is_seen = _mm512_cmp_ps_mask(probability, _mm512_setzero_ps(), _CMP_NEQ_UQ);
        probability = _mm512_maskz_mul_ps(is_seen, probability, vec::load(keep.row(key) + query));
      }
      tile::store_lanes(p.row(key) + query, tile::rounded(probability, lanes));
      tile::store_lanes(ds.row(key) + query, d);
      return d;
    };
    for (int64_t key = 0; key < tile::round_up(block.n, tile::kBlock); key += 2) {
      const __m256i low = round_key(key);
      _mm512_storeu_si512(ds_pairs.row(key / 2) + query, tile::interleave(low, round_key(key + 1)));
    }
  }
};
#endif

// Returns the number of units that the query heads of one kv head are divided into, which exceeds 1 if
// the kv heads alone are too few to keep the cores busy. It depends on the shape and not on the number
// of threads, so the order of the sums does too.
int64_t group_splits(const AttentionShape& shape) {
  const int64_t group = shape.H / shape.K;
  int64_t splits = 1;
  while (splits < group && (shape.B * shape.K * splits < kUnits || group % splits != 0)) ++splits;
  return splits;
}

int64_t gradient_size(const AttentionShape& shape) { return shape.S * tile::leading_dim(shape.D); }

// The dk and dv sums of unit (b, kv, split), used if a kv head has several units.
struct UnitSums {
  Matrix dk, dv;

  UnitSums(float* base, const AttentionShape& shape, int64_t unit)
      : dk{base + 2 * unit * gradient_size(shape), tile::leading_dim(shape.D)},
        dv{dk.data + gradient_size(shape), dk.ld} {}
};

// Computes the five products of one tile of queries against one tile of keys. keep is null without
// dropout; otherwise it multiplies p in the sum over v, and d_out . v in the gradient of p. delta
// remains sum_d d_out * out.
template <typename Gradients>
void backward_block(const AttentionProblem& p, const Gradients& ws, const Block& block, const QueryTile& tile,
                    int64_t first_key, const AttentionKeep* keep) {
  const int64_t D = p.shape.D;
  ws.compute_scores(block, first_key, D);
  if (keep) {
    keep->fill(ws.keep, block, tile.begin, first_key);
    multiply_visible(ws.dp, ws.keep, block);
  }
  ws.finish_scores(block, p.scale, keep != nullptr);
  ws.add_key_gradients(block, first_key, D);
  ws.add_query_gradients(block, first_key, first_key == tile.first_key, D);
}

// Loads q, d_out and lse, and computes delta[i] = sum_d d_out * out, which equals sum_s p * dp.
template <typename Gradients, typename T>
void load_queries(const AttentionProblem& p, const Gradients& ws, const AttentionGradients<T>& g,
                  HeadView<T> q, const QueryTile& tile, int64_t b, int64_t h) {
  const int64_t m = tile.queries(), D = p.shape.D;
  ws.load_queries(q, g.d_out, b, tile.begin, h, m, D);
  const float* lse = g.lse + (b * p.shape.H + h) * p.shape.T + tile.begin;
  for (int64_t i = 0; i < kQueries; ++i) {
    ws.lse[i] = i < m ? lse[i] : 0.0f;
    ws.delta[i] = 0.0f;
    if (i >= m) continue;
    vec::Vec products{};
    const T* d_out = g.d_out.at(b, tile.begin + i, h);
    const T* out = g.out.at(b, tile.begin + i, h);
    vec::for_each(D, [&](auto load, auto) { products += load(d_out) * load(out); });
    ws.delta[i] = vec::sum(products);
  }
}

// Calls f(QueryTile) for tiles of at most kQueries queries that begin at a document's first query. The sums
// over queries of a key then group the queries of its document alike wherever the document stands.
template <typename F>
void for_each_document_tile(const AttentionProblem& p, int64_t b, F&& f) {
  const int32_t* starts = p.doc_start ? p.doc_start + b * p.shape.T : nullptr;
  for (int64_t t = 0; t < p.shape.T;) {
    int64_t end = starts ? t + 1 : std::min(p.shape.T, t + kQueries);
    while (end < std::min(p.shape.T, t + kQueries) && starts && starts[end] == starts[t]) ++end;
    for_each_query_tile(p, b, t, end, f);
    t = end;
  }
}

template <typename Gradients, typename T>
void backward_head(const AttentionProblem& p, const Gradients& ws, const AttentionGradients<T>& g,
                   HeadView<T> q, int64_t b, int64_t h) {
  const std::optional<AttentionKeep> keep = make_keep(p, b, h);
  for_each_document_tile(p, b, [&](const QueryTile& tile) {
    load_queries(p, ws, g, q, tile, b, h);
    for_each_key_tile(p, tile, kKeys, [&](int64_t first_key, const Block& block) {
      backward_block(p, ws, block, tile, first_key, keep ? &*keep : nullptr);
    });
    ws.finish_queries(tile.queries(), p.shape.D);
    tile::store_rows(g.dq.at(b, tile.begin, h), g.dq.time_stride, ws.dq, tile.queries(), p.shape.D, p.scale);
  });
}

// Computes rows [begin, end) of dk and dv of one kv head from the sums of its units, in the order of the
// units.
template <typename T>
void sum_units(const AttentionProblem& p, const AttentionGradients<T>& g, float* sums, int64_t b, int64_t kv,
               int64_t begin, int64_t end) {
  const int64_t splits = group_splits(p.shape), first_unit = (b * p.shape.K + kv) * splits, D = p.shape.D;
  const UnitSums total(sums, p.shape, first_unit);
  for (int64_t s = begin; s < end; ++s) {
    for (int64_t split = 1; split < splits; ++split) {
      const UnitSums part(sums, p.shape, first_unit + split);
      for (int64_t d = 0; d < D; ++d) {
        total.dk.row(s)[d] += part.dk.row(s)[d];
        total.dv.row(s)[d] += part.dv.row(s)[d];
      }
    }
    tile::store_rows(g.dk.at(b, s, kv), 0, total.dk.from_row(s), 1, D, p.scale);
    tile::store_rows(g.dv.at(b, s, kv), 0, total.dv.from_row(s), 1, D, 1.0f);
  }
}

template <typename Gradients>
int64_t scratch_for(const AttentionShape& shape) {
  ScratchLayout layout(nullptr);
  Gradients(layout, shape);
  return layout.used();
}

int64_t scratch_of_thread(const AttentionShape& shape) {
  const int64_t f32 = scratch_for<F32Gradients>(shape);
#ifdef INGOT_ATTENTION_BF16
  if (tile::fits_bf16_units(shape)) return std::max(f32, scratch_for<Bf16Gradients>(shape));
#endif
  return f32;
}

// A unit of work is a kv head with all, or an equal fraction, of its query heads.
template <typename Gradients, typename T>
void run_backward(const AttentionProblem& p, const AttentionGradients<T>& g, HeadView<T> q, HeadView<T> k,
                  HeadView<T> v, float* scratch) {
  const AttentionShape& shape = p.shape;
  const int64_t thread_scratch = scratch_of_thread(shape);
  float* sums = scratch + num_threads() * thread_scratch;
  const int64_t splits = group_splits(shape), heads = shape.H / shape.K / splits;

  parallel_ranges(shape.B * shape.K * splits, 1, [&](int thread, int64_t unit_begin, int64_t unit_end) {
    ScratchLayout layout(scratch + thread * thread_scratch);
    Gradients ws(layout, shape);
    for (int64_t unit = unit_begin; unit < unit_end; ++unit) {
      const int64_t kv = unit / splits % shape.K, b = unit / splits / shape.K;
      ws.load_keys(k, v, b, kv, shape);
      if (splits > 1) {
        const UnitSums own(sums, shape, unit);
        ws.dk = own.dk;
        ws.dv = own.dv;
      }
      std::fill_n(ws.dk.data, gradient_size(shape), 0.0f);
      std::fill_n(ws.dv.data, gradient_size(shape), 0.0f);
      for (int64_t i = 0; i < heads; ++i)
        backward_head(p, ws, g, q, b, (kv * splits + unit % splits) * heads + i);
      if (splits > 1) continue;
      tile::store_rows(g.dk.at(b, 0, kv), g.dk.time_stride, ws.dk, shape.S, shape.D, p.scale);
      tile::store_rows(g.dv.at(b, 0, kv), g.dv.time_stride, ws.dv, shape.S, shape.D, 1.0f);
    }
  });
  if (splits == 1) return;
  parallel_for(shape.B * shape.K * shape.S, 64, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const int64_t s = row % shape.S, kv = row / shape.S % shape.K, b = row / shape.S / shape.K;
      sum_units(p, g, sums, b, kv, s, s + 1);
    }
  });
}

}  // namespace

int64_t attention_backward_scratch(const AttentionShape& shape, int threads) {
  const int64_t splits = group_splits(shape);
  const int64_t unit_sums = splits > 1 ? shape.B * shape.K * splits * 2 * gradient_size(shape) : 0;
  return scratch_of_thread(shape) * threads + unit_sums;
}

template <typename T>
void attention_backward(const AttentionProblem& p, const AttentionGradients<T>& g, HeadView<T> q,
                        HeadView<T> k, HeadView<T> v, float* scratch) {
#ifdef INGOT_ATTENTION_BF16
  if constexpr (std::is_same_v<T, bf16>) {
    if (tile::fits_bf16_units(p.shape)) return run_backward<Bf16Gradients>(p, g, q, k, v, scratch);
  }
#endif
  run_backward<F32Gradients>(p, g, q, k, v, scratch);
}

template void attention_backward(const AttentionProblem&, const AttentionGradients<float>&, HeadView<float>,
                                 HeadView<float>, HeadView<float>, float*);
template void attention_backward(const AttentionProblem&, const AttentionGradients<bf16>&, HeadView<bf16>,
                                 HeadView<bf16>, HeadView<bf16>, float*);
template void attention_backward(const AttentionProblem&, const AttentionGradients<f16>&, HeadView<f16>,
                                 HeadView<f16>, HeadView<f16>, float*);

}  // namespace ingot::cpu
