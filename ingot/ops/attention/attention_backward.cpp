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

// Working memory of one thread.
struct Workspace {
  Matrix k, v;            // (S, D) of the current kv head, in f32
  Matrix dk, dv;          // (S, D) sums; dk without the factor scale
  Matrix q, d_out, dq;    // (kQueries, D); dq without the factor scale
  Matrix q_dm, d_out_dm;  // (D, kQueries)
  Matrix p, ds;           // (kKeys, kQueries)
  Matrix keep;            // (kKeys, kQueries) dropout factors
  float *lse, *delta;     // (kQueries)

  Workspace(ScratchLayout& layout, const AttentionShape& shape)
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
        ds(layout.matrix(kKeys, kQueries)),
        keep(layout.matrix(kKeys, kQueries)),
        lse(layout.take(kQueries)),
        delta(layout.take(kQueries)) {}
};

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
void backward_block(const AttentionProblem& p, const Workspace& ws, const Block& block, const QueryTile& tile,
                    int64_t first_key, const AttentionKeep* keep) {
  const int64_t D = p.shape.D;
  const bool is_first = first_key == tile.first_key;
  tile::score_product(ws.p, ws.k.from_row(first_key), ws.q_dm, block, D);
  tile::score_product(ws.ds, ws.v.from_row(first_key), ws.d_out_dm, block, D);
  if (keep) {
    keep->fill(ws.keep, block, tile.begin, first_key);
    multiply_visible(ws.ds, ws.keep, block);
  }
  for (int64_t i = 0; i < block.m; i += tile::kPanel)
    tile::softmax_gradient_panel(ws.p, ws.ds, block, i, p.scale, ws.lse, ws.delta);
  if (keep) multiply_visible(ws.p, ws.keep, block);
  const auto seen_by = [&](int64_t j, int64_t) { return tile::Span{block.first_query(j), block.m}; };
  tile::product<false>(Start::kAdd, ws.dv.from_row(first_key), ws.p, ws.d_out, block.n, D, seen_by);
  tile::product<false>(Start::kAdd, ws.dk.from_row(first_key), ws.ds, ws.q, block.n, D, seen_by);
  tile::product<true>(is_first ? Start::kZero : Start::kAdd, ws.dq, ws.ds, ws.k.from_row(first_key), block.m,
                      D, [&](int64_t, int64_t q_end) {
                        return tile::Span{0, block.visible_keys(q_end - 1)};
                      });
}

// Loads q, d_out and lse, and computes delta[i] = sum_d d_out * out, which equals sum_s p * dp.
template <typename T>
void load_queries(const AttentionProblem& p, const Workspace& ws, const AttentionGradients<T>& g,
                  HeadView<T> q, const QueryTile& tile, int64_t b, int64_t h) {
  const int64_t m = tile.queries(), D = p.shape.D;
  tile::load_rows(ws.q, q.at(b, tile.begin, h), q.time_stride, m, D);
  tile::load_rows(ws.d_out, g.d_out.at(b, tile.begin, h), g.d_out.time_stride, m, D);
  tile::transpose_rows(ws.q_dm, ws.q, m, D);
  tile::transpose_rows(ws.d_out_dm, ws.d_out, m, D);
  const float* lse = g.lse + (b * p.shape.H + h) * p.shape.T + tile.begin;
  for (int64_t i = 0; i < kQueries; ++i) {
    ws.lse[i] = i < m ? lse[i] : 0.0f;
    ws.delta[i] = 0.0f;
    if (i >= m) continue;
    vec::Vec products{};
    const T* out = g.out.at(b, tile.begin + i, h);
    vec::for_each(D, [&](auto load, auto) { products += load(ws.d_out.row(i)) * load(out); });
    ws.delta[i] = vec::sum(products);
  }
}

template <typename T>
void backward_head(const AttentionProblem& p, const Workspace& ws, const AttentionGradients<T>& g,
                   HeadView<T> q, int64_t b, int64_t h) {
  const std::optional<AttentionKeep> keep = make_keep(p, b, h);
  for (int64_t begin = 0; begin < p.shape.T; begin += kQueries) {
    const int64_t end = std::min(p.shape.T, begin + kQueries);
    for_each_query_tile(p, b, begin, end, [&](const QueryTile& tile) {
      load_queries(p, ws, g, q, tile, b, h);
      for_each_key_tile(p, tile, kKeys, [&](int64_t first_key, const Block& block) {
        backward_block(p, ws, block, tile, first_key, keep ? &*keep : nullptr);
      });
      tile::store_rows(g.dq.at(b, tile.begin, h), g.dq.time_stride, ws.dq, tile.queries(), p.shape.D,
                       p.scale);
    });
  }
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

}  // namespace

int64_t attention_backward_scratch(const AttentionShape& shape, int threads) {
  ScratchLayout layout(nullptr);
  Workspace(layout, shape);
  const int64_t splits = group_splits(shape);
  const int64_t unit_sums = splits > 1 ? shape.B * shape.K * splits * 2 * gradient_size(shape) : 0;
  return layout.used() * threads + unit_sums;
}

// A unit of work is a kv head with all, or an equal fraction, of its query heads.
template <typename T>
void attention_backward(const AttentionProblem& p, const AttentionGradients<T>& g, HeadView<T> q,
                        HeadView<T> k, HeadView<T> v, float* scratch) {
  const AttentionShape& shape = p.shape;
  ScratchLayout counted(nullptr);
  Workspace(counted, shape);
  float* sums = scratch + num_threads() * counted.used();
  const int64_t splits = group_splits(shape), heads = shape.H / shape.K / splits;

  parallel_ranges(shape.B * shape.K * splits, 1, [&](int thread, int64_t unit_begin, int64_t unit_end) {
    ScratchLayout layout(scratch + thread * counted.used());
    Workspace ws(layout, shape);
    for (int64_t unit = unit_begin; unit < unit_end; ++unit) {
      const int64_t kv = unit / splits % shape.K, b = unit / splits / shape.K;
      tile::load_rows(ws.k, k.at(b, 0, kv), k.time_stride, shape.S, shape.D);
      tile::load_rows(ws.v, v.at(b, 0, kv), v.time_stride, shape.S, shape.D);
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

template void attention_backward(const AttentionProblem&, const AttentionGradients<float>&, HeadView<float>,
                                 HeadView<float>, HeadView<float>, float*);
template void attention_backward(const AttentionProblem&, const AttentionGradients<bf16>&, HeadView<bf16>,
                                 HeadView<bf16>, HeadView<bf16>, float*);
template void attention_backward(const AttentionProblem&, const AttentionGradients<f16>&, HeadView<f16>,
                                 HeadView<f16>, HeadView<f16>, float*);

}  // namespace ingot::cpu
