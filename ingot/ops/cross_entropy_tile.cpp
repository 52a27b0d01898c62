#include "ingot/ops/cross_entropy_tile.h"

#include <algorithm>
#include <limits>

#include "ingot/core/parallel.h"
#include "ingot/ops/cross_entropy_terms.h"
#include "ingot/ops/dispatch.h"

namespace ingot {
namespace {

TileRow* tile_rows(const Tensor& rows, int64_t N, const char* op) {
  check_tensor(rows, DType::u8, {N, static_cast<int64_t>(sizeof(TileRow))}, op);
  return reinterpret_cast<TileRow*>(rows.as<uint8_t>());
}

int64_t row_grain(int64_t W) { return std::max<int64_t>(1, 4096 / std::max<int64_t>(1, W)); }

template <typename Cap>
void fold_row(TileRow& row, float* x, int64_t n, int64_t first, int64_t target, const Cap& cap,
              bool is_smoothed) {
  const float x_max = vec::row_max(x, n);
  if (x_max > row.x_max || row.top < 0) {
    const float z_max = cap(vec::splat(x_max)).z[0];
    if (row.top >= 0) row.total *= std::exp(static_cast<double>(row.z_max) - static_cast<double>(z_max));
    row.x_max = x_max;
    row.z_max = z_max;
    row.top = static_cast<int32_t>(first + (std::find(x, x + n, x_max) - x));
  }
  row.total += loss_terms::exp_total<false>(x, cap, row.z_max, n);
  if (is_smoothed) row.z_sum += loss_terms::capped_total(x, cap, n);
  if (target >= first && target < first + n) row.z_target = cap(vec::splat(x[target - first])).z[0];
}

void check_tile(const Tensor& tile, int64_t first, const Tensor& targets, const char* op) {
  INGOT_CHECK(tile.rank() == 2 && tile.is_contiguous() && first >= 0,
              "{}: a tile must be (N, W), contiguous and not before column 0, got {} at {}", op,
              tile.shape.to_string(), first);
  check_tensor(tile, DType::f32, tile.shape, op);
  check_tensor(targets, DType::i32, {tile.dim(0)}, op);
}

// What another tile, further to the right, knows of a row is added to what is known of it.
void merge_row(TileRow& row, const TileRow& right) {
  row.z_sum += right.z_sum;
  if (right.top < 0) return;
  const double gap = static_cast<double>(right.z_max) - static_cast<double>(row.z_max);
  if (row.top < 0 || right.x_max > row.x_max) {
    row.total = (row.top < 0 ? 0 : row.total * std::exp(-gap)) + right.total;
    row.x_max = right.x_max;
    row.z_max = right.z_max;
    row.top = right.top;
  } else {
    row.total += right.total * std::exp(gap);
  }
}

// Columns of a tile that are classes.
int64_t valid_columns(const CrossEntropyConfig& config, int64_t first, int64_t W) {
  return std::clamp<int64_t>(config.vocab - first, 0, W);
}

}  // namespace

void cross_entropy_begin(const Tensor& rows, Stream& stream) {
  const Span span(stream.trace, "loss");
  const int64_t N = rows.dim(0);
  std::fill_n(tile_rows(rows, N, "cross_entropy_begin: rows"), N,
              TileRow{.total = 0, .z_sum = 0, .x_max = 0, .z_max = 0, .z_target = 0, .top = -1});
}

void cross_entropy_fold(const Tensor& rows, const Tensor& tile, int64_t first, const Tensor& targets,
                        const CrossEntropyConfig& config, Stream& stream) {
  const Span span(stream.trace, "loss");
  check_tile(tile, first, targets, "cross_entropy_fold");
  const int64_t N = tile.dim(0), W = tile.dim(1), n = valid_columns(config, first, W);
  TileRow* row = tile_rows(rows, N, "cross_entropy_fold: rows");
  const int32_t* target = targets.as<int32_t>();
  if (n == 0) return;
  with_cap(config, [&](auto cap) {
    parallel_for(N, row_grain(W), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i)
        if (target[i] != kIgnoreIndex)
          fold_row(row[i], tile.as<float>() + i * W, n, first, target[i], cap, config.label_smoothing > 0);
    });
  });
}

void cross_entropy_merge(const Tensor& rows, const Tensor& parts, const Tensor& targets, int64_t part_columns,
                         Stream& stream) {
  const Span span(stream.trace, "loss");
  const int64_t N = rows.dim(0), row_bytes = static_cast<int64_t>(sizeof(TileRow));
  TileRow* row = tile_rows(rows, N, "cross_entropy_merge: rows");
  check_tensor(parts, DType::u8, {parts.dim(0), N, row_bytes}, "cross_entropy_merge: parts");
  check_tensor(targets, DType::i32, {N}, "cross_entropy_merge: targets");
  const auto* part = reinterpret_cast<const TileRow*>(parts.as<uint8_t>());
  const int32_t* target = targets.as<int32_t>();
  for (int64_t n = 0; n < N; ++n) {
    TileRow merged{.total = 0, .z_sum = 0, .x_max = 0, .z_max = 0, .z_target = 0, .top = -1};
    for (int64_t p = 0; p < parts.dim(0); ++p) {
      merge_row(merged, part[p * N + n]);
      if (target[n] / part_columns == p) merged.z_target = part[p * N + n].z_target;
    }
    row[n] = merged;
  }
}

void cross_entropy_finish(const Tensor& losses, const Tensor& is_correct, const Tensor& lse,
                          const Tensor& rows, const Tensor& targets, const CrossEntropyConfig& config,
                          Stream& stream) {
  const Span span(stream.trace, "loss");
  const int64_t N = rows.dim(0);
  const TileRow* row = tile_rows(rows, N, "cross_entropy_finish: rows");
  check_tensor(losses, DType::f32, {N}, "cross_entropy_finish: losses");
  check_tensor(lse, DType::f32, {N}, "cross_entropy_finish: lse");
  if (is_correct) check_tensor(is_correct, DType::u8, {N}, "cross_entropy_finish: is_correct");
  loss_terms::check_targets(targets, config.vocab);
  const int32_t* target = targets.as<int32_t>();
  for (int64_t i = 0; i < N; ++i) {
    loss_terms::Objective result{0, 0};
    if (target[i] != kIgnoreIndex)
      result = loss_terms::objective(config, static_cast<double>(row[i].z_max), row[i].total,
                                     static_cast<double>(row[i].z_target), row[i].z_sum);
    losses.as<float>()[i] = static_cast<float>(result.loss);
    lse.as<float>()[i] = static_cast<float>(result.lse);
    if (is_correct) is_correct.as<uint8_t>()[i] = target[i] != kIgnoreIndex && row[i].top == target[i];
  }
}

void cross_entropy_tile_gradient(const Tensor& d_tile, const Tensor& tile, int64_t first, const Tensor& lse,
                                 const Tensor& targets, const CrossEntropyConfig& config, Stream& stream) {
  const Span span(stream.trace, "loss");
  check_tile(tile, first, targets, "cross_entropy_tile_gradient");
  const int64_t N = tile.dim(0), W = tile.dim(1), n = valid_columns(config, first, W);
  check_tensor(d_tile, d_tile.dtype, {N, W}, "cross_entropy_tile_gradient: d_tile");
  check_tensor(lse, DType::f32, {N}, "cross_entropy_tile_gradient: lse");
  const int32_t* target = targets.as<int32_t>();
  INGOT_DISPATCH(d_tile.dtype, D, {
    with_cap(config, [&](auto cap) {
      parallel_for(N, row_grain(W), [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
          D* d = d_tile.as<D>() + i * W;
          int64_t filled = 0;
          if (target[i] != kIgnoreIndex) {
            loss_terms::gradient_from_lse(d, tile.as<float>() + i * W, n, cap, lse.as<float>()[i],
                                          target[i] - first, config);
            filled = n;
          }
          std::fill(d + filled, d + W, D(0.0f));
        }
      });
    });
  });
}

}  // namespace ingot
