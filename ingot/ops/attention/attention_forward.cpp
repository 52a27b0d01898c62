#include <cmath>
#include <limits>

#include "ingot/ops/attention/attention_kernels.h"
#include "ingot/ops/attention/attention_softmax.h"

namespace ingot::cpu {
namespace {

using tile::Block;
using tile::Matrix;
using tile::Start;

constexpr int64_t kQueries = 64;  // queries of a tile
constexpr int64_t kKeys = 96;

// Working memory of one thread.
struct Workspace {
  Matrix k, v;                 // (S, D) of the current kv head, in f32
  Matrix q;                    // (kQueries, D)
  Matrix q_dm;                 // (D, kQueries)
  Matrix s;                    // (kKeys, kQueries) scores, then probabilities without the factor 1/sum
  Matrix keep;                 // (kKeys, kQueries) dropout factors
  Matrix out;                  // (kQueries, D)
  float *max, *sum, *rescale;  // (kQueries)

  Workspace(ScratchLayout& layout, const AttentionShape& shape)
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
};

// out = rescale * out + p v for one key tile; ws.s holds p.
void add_values(const Workspace& ws, const Block& block, int64_t first_key, bool is_first, int64_t D) {
  tile::product<true>(
      is_first ? Start::kZero : Start::kScaled, ws.out, ws.s, ws.v.from_row(first_key), block.m, D,
      [&](int64_t, int64_t q_end) {
        return tile::Span{0, block.visible_keys(q_end - 1)};
      },
      ws.rescale);
}

// Computes ws.out, ws.max and ws.sum from ws.q for one tile of queries. keep is null without dropout.
void forward_tile(const AttentionProblem& p, const Workspace& ws, const QueryTile& tile,
                  const AttentionKeep* keep) {
  const int64_t D = p.shape.D;
  std::fill_n(ws.max, kQueries, -std::numeric_limits<float>::infinity());
  std::fill_n(ws.sum, kQueries, 0.0f);
  for_each_key_tile(p, tile, kKeys, [&](int64_t first_key, const Block& block) {
    tile::score_product(ws.s, ws.k.from_row(first_key), ws.q_dm, block, D);
    for (int64_t i = 0; i < block.m; i += tile::kPanel)
      tile::softmax_panel(ws.s, block, i, p.scale, ws.max, ws.sum, ws.rescale);
    if (keep) {
      keep->fill(ws.keep, block, tile.begin, first_key);
      multiply_visible(ws.s, ws.keep, block);
    }
    add_values(ws, block, first_key, first_key == tile.first_key, D);
  });
}

}  // namespace

int64_t attention_forward_scratch(const AttentionShape& shape, int threads) {
  ScratchLayout layout(nullptr);
  Workspace(layout, shape);
  return layout.used() * threads;
}

// A unit of work is a pair of query chunks of one head, one early and one late, so that all units cost
// the same under a causal mask.
template <typename T>
void attention_forward(const AttentionProblem& p, HeadView<T> out, float* lse, HeadView<T> q, HeadView<T> k,
                       HeadView<T> v, float* scratch) {
  const AttentionShape& shape = p.shape;
  const int64_t chunks = (shape.T + kQueries - 1) / kQueries, pairs = (chunks + 1) / 2;
  const int64_t thread_scratch = attention_forward_scratch(shape, 1);

  const auto run_chunk = [&](const Workspace& ws, int64_t b, int64_t h, int64_t chunk) {
    const int64_t begin = chunk * kQueries, end = std::min(shape.T, begin + kQueries);
    const std::optional<AttentionKeep> keep = make_keep(p, b, h);
    for_each_query_tile(p, b, begin, end, [&](const QueryTile& tile) {
      const int64_t m = tile.queries(), D = shape.D;
      tile::load_rows(ws.q, q.at(b, tile.begin, h), q.time_stride, m, D);
      tile::transpose_rows(ws.q_dm, ws.q, m, D);
      forward_tile(p, ws, tile, keep ? &*keep : nullptr);
      for (int64_t i = 0; i < m; ++i) ws.rescale[i] = 1.0f / ws.sum[i];
      tile::store_rows(out.at(b, tile.begin, h), out.time_stride, ws.out, m, D, 1.0f, ws.rescale);
      if (!lse) return;
      float* row = lse + (b * shape.H + h) * shape.T + tile.begin;
      for (int64_t i = 0; i < m; ++i) row[i] = ws.max[i] * p.scale + std::log(ws.sum[i]);
    });
  };

  parallel_ranges(shape.B * shape.H * pairs, 1, [&](int thread, int64_t unit_begin, int64_t unit_end) {
    ScratchLayout layout(scratch + thread * thread_scratch);
    const Workspace ws(layout, shape);
    int64_t loaded = -1;
    for (int64_t unit = unit_begin; unit < unit_end; ++unit) {
      const int64_t b = unit / pairs / shape.H, h = unit / pairs % shape.H, pair = unit % pairs;
      const int64_t kv = p.kv_head(h);
      if (std::exchange(loaded, b * shape.K + kv) != b * shape.K + kv) {
        tile::load_rows(ws.k, k.at(b, 0, kv), k.time_stride, shape.S, shape.D);
        tile::load_rows(ws.v, v.at(b, 0, kv), v.time_stride, shape.S, shape.D);
      }
      run_chunk(ws, b, h, pair);
      if (chunks - 1 - pair != pair) run_chunk(ws, b, h, chunks - 1 - pair);
    }
  });
}

template void attention_forward(const AttentionProblem&, HeadView<float>, float*, HeadView<float>,
                                HeadView<float>, HeadView<float>, float*);
template void attention_forward(const AttentionProblem&, HeadView<bf16>, float*, HeadView<bf16>,
                                HeadView<bf16>, HeadView<bf16>, float*);
template void attention_forward(const AttentionProblem&, HeadView<f16>, float*, HeadView<f16>, HeadView<f16>,
                                HeadView<f16>, float*);

}  // namespace ingot::cpu
