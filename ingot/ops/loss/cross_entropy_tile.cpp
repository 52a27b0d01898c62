#include "ingot/ops/loss/cross_entropy_tile.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "ingot/core/cuda/cuda_device.h"
#include "ingot/core/dispatch.h"
#include "ingot/core/parallel.h"
#include "ingot/core/work.h"
#include "ingot/ops/loss/cross_entropy_terms.h"
#include "ingot/ops/loss/tile_row_rules.h"

namespace ingot {

namespace cuda {  // cross_entropy_tile.cu
decltype(ingot::cross_entropy_begin) cross_entropy_begin;
decltype(ingot::cross_entropy_fold) cross_entropy_fold;
decltype(ingot::cross_entropy_merge) cross_entropy_merge;
decltype(ingot::cross_entropy_finish) cross_entropy_finish;
decltype(ingot::cross_entropy_tile_gradient) cross_entropy_tile_gradient;
}  // namespace cuda

namespace {

TileRow* tile_rows(const Tensor& rows, int64_t N, const char* op) {
  check_tensor(rows, DType::u8, {N, kTileRowBytes}, op);
  return tile_rows_of(rows);
}

int64_t row_grain(int64_t W) { return std::max<int64_t>(1, 4096 / std::max<int64_t>(1, W)); }

// Updates the row's largest logit with x (n), the columns from `first` on, and rescales the row's total.
template <typename Cap>
void raise_max(TileRow& row, const float* x, int64_t n, int64_t first, const Cap& cap) {
  const float x_max = vec::row_max(x, n);
  if (x_max <= row.x_max && row.top >= 0) return;
  const float z_max = cap(vec::splat(x_max)).z[0];
  if (row.top >= 0) row.total *= std::exp(static_cast<double>(row.z_max) - static_cast<double>(z_max));
  row.x_max = x_max;
  row.z_max = z_max;
  row.top = static_cast<int32_t>(first + (std::find(x, x + n, x_max) - x));
}

void check_tile(const LogitTile& tile, const char* op) {
  const Tensor& logits = tile.logits;
  INGOT_CHECK(logits.rank() == 2 && logits.is_contiguous() && tile.first >= 0,
              "{}: a tile must be (N, W), contiguous and not before column 0, got {} at {}", op,
              logits.shape.to_string(), tile.first);
  check_tensor(logits, DType::f32, logits.shape, op);
  check_tensor(tile.targets, DType::i32, {logits.dim(0)}, op);
}

// Returns the number of columns of a tile that are classes.
int64_t valid_columns(const CrossEntropyConfig& config, int64_t first, int64_t W) {
  return std::clamp<int64_t>(config.vocab - first, 0, W);
}

// Does the common work of the folds for every row that has a target, except for adding up the
// exponentials, which f(row, i, x, n, cap) does.
template <typename F>
void fold_rows(const Tensor& rows, const LogitTile& tile, const CrossEntropyConfig& config, F&& f) {
  check_tile(tile, "cross_entropy_fold");
  const int64_t N = tile.logits.dim(0), W = tile.logits.dim(1), first = tile.first;
  const int64_t n = valid_columns(config, first, W);
  TileRow* row = tile_rows(rows, N, "cross_entropy_fold: rows");
  const int32_t* target = tile.targets.as<int32_t>();
  if (n == 0) return;
  with_cap(config, [&](auto cap) {
    parallel_for(N, row_grain(W), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        if (target[i] == kIgnoreIndex) continue;
        float* x = tile.logits.as<float>() + i * W;
        raise_max(row[i], x, n, first, cap);
        if (config.label_smoothing > 0) row[i].z_sum += loss_terms::capped_total(x, cap, n);
        if (target[i] >= first && target[i] < first + n) row[i].x_target = x[target[i] - first];
        f(row[i], i, x, n, cap);
      }
    });
  });
}

void check_kept(const KeptExponentials& kept, int64_t N, const char* op) {
  const int64_t W = kept.values.dim(1), wide = kept.tile_columns;
  INGOT_CHECK(wide > 0, "{}: kept tiles must have columns, got {}", op, wide);
  check_tensor(kept.values, DType::f16, {N, W}, op);
  check_tensor(kept.references, DType::f32, {(W + wide - 1) / wide, N}, op);
}

// out = the gradient of row i's first n columns, except the target's, from the kept exponentials. out
// may alias them.
template <typename D>
void kept_row_gradient(D* out, const KeptExponentials& kept, int64_t i, int64_t n, float lse,
                       const loss_terms::GradientTerms& terms, const CrossEntropyConfig& config) {
  const int64_t N = kept.values.dim(0), W = kept.values.dim(1), wide = kept.tile_columns;
  const f16* values = kept.values.as<f16>() + i * W;
  const double on_p =
      static_cast<double>(config.grad_scale) * terms.on_p / static_cast<double>(kept_scale(config));
  const auto off = static_cast<float>(static_cast<double>(config.grad_scale) * terms.off);
  for (int64_t tile = 0; tile * wide < n; ++tile) {
    const int64_t begin = tile * wide;
    const double reference = static_cast<double>(kept.references.as<float>()[tile * N + i]);
    const auto factor = static_cast<float>(on_p * std::exp(reference - static_cast<double>(lse)));
    vec::for_each(std::min(wide, n - begin),
                  [&](auto load, auto store) { store(out + begin, load(values + begin) * factor - off); });
  }
}

}  // namespace

void cross_entropy_begin(const Tensor& rows, Stream& stream) {
  const OpSpan span(stream, "loss", traffic({rows}));
  if (span.plans()) return;
  const int64_t N = rows.dim(0);
  TileRow* row = tile_rows(rows, N, "cross_entropy_begin: rows");
  if constexpr (kHasCuda) {
    if (rows.device == Device::kCuda) return cuda::cross_entropy_begin(rows, stream);
  }
  std::fill_n(row, N, kEmptyRow);
}

void cross_entropy_fold(const Tensor& rows, const LogitTile& tile, const CrossEntropyConfig& config,
                        Stream& stream) {
  const OpSpan span(stream, "loss", traffic({rows, rows, tile.logits, tile.targets}));
  if (span.plans()) return;
  if constexpr (kHasCuda) {
    if (tile.logits.device == Device::kCuda) return cuda::cross_entropy_fold(rows, tile, config, stream);
  }
  fold_rows(rows, tile, config, [](TileRow& row, int64_t, float* x, int64_t n, const auto& cap) {
    row.total += loss_terms::exp_total<false>(x, cap, row.z_max, n);
  });
}

float kept_scale(const CrossEntropyConfig& config) {
  constexpr int kLargest = 15;  // f16 ends below 2^16
  return std::ldexp(1.0f, kLargest - std::max(0, static_cast<int>(std::ceil(std::log2(max_slope(config))))));
}

void cross_entropy_fold_and_keep(const KeptExponentials& kept, int64_t tile_index, const Tensor& rows,
                                 const LogitTile& tile, const CrossEntropyConfig& config, Stream& stream) {
  const OpSpan span(
      stream, "loss",
      {.bytes = 2 * static_cast<double>(rows.bytes()) + static_cast<double>(tile.logits.bytes()) * 1.5});
  if (span.plans()) return;
  check_kept(kept, tile.logits.dim(0), "cross_entropy_fold_and_keep");
  const int64_t ld = kept.values.strides[0];
  f16* values = kept.values.as<f16>() + tile_index * kept.tile_columns;
  float* references = kept.references.as<float>() + tile_index * tile.logits.dim(0);
  const float scale = kept_scale(config);
  fold_rows(rows, tile, config, [&](TileRow& row, int64_t i, float* x, int64_t n, const auto& cap) {
    references[i] = row.z_max;
    row.total += loss_terms::exp_total_kept(values + i * ld, scale, x, cap, row.z_max, n);
  });
}

void cross_entropy_merge(const Tensor& rows, const Tensor& parts, const Tensor& targets, int64_t part_columns,
                         Stream& stream) {
  const OpSpan span(stream, "loss", traffic({rows, parts, targets}));
  if (span.plans()) return;
  const int64_t N = rows.dim(0);
  TileRow* row = tile_rows(rows, N, "cross_entropy_merge: rows");
  check_tensor(parts, DType::u8, {parts.dim(0), N, kTileRowBytes}, "cross_entropy_merge: parts");
  check_tensor(targets, DType::i32, {N}, "cross_entropy_merge: targets");
  if constexpr (kHasCuda) {
    if (rows.device == Device::kCuda)
      return cuda::cross_entropy_merge(rows, parts, targets, part_columns, stream);
  }
  const TileRow* part = tile_rows_of(parts);
  const int32_t* target = targets.as<int32_t>();
  for (int64_t n = 0; n < N; ++n) {
    row[n] =
        merged_row(part + n, N, parts.dim(0), target[n], part_columns, [](double x) { return std::exp(x); });
  }
}

void cross_entropy_finish(const Tensor& losses, const Tensor& is_correct, const Tensor& lse,
                          const Tensor& rows, const Tensor& targets, const CrossEntropyConfig& config,
                          Stream& stream) {
  const OpSpan span(stream, "loss", traffic({losses, is_correct, lse, rows, targets}));
  if (span.plans()) return;
  const int64_t N = rows.dim(0);
  const TileRow* row = tile_rows(rows, N, "cross_entropy_finish: rows");
  check_tensor(losses, DType::f32, {N}, "cross_entropy_finish: losses");
  check_tensor(lse, DType::f32, {N}, "cross_entropy_finish: lse");
  if (is_correct) check_tensor(is_correct, DType::u8, {N}, "cross_entropy_finish: is_correct");
  if constexpr (kHasCuda) {
    if (rows.device == Device::kCuda)
      return cuda::cross_entropy_finish(losses, is_correct, lse, rows, targets, config, stream);
  }
  loss_terms::check_targets(targets, config.vocab);
  const int32_t* target = targets.as<int32_t>();
  with_cap(config, [&](auto cap) {
    for (int64_t i = 0; i < N; ++i) {
      loss_terms::Objective result{0, 0};
      if (target[i] != kIgnoreIndex)
        result =
            loss_terms::objective(config, static_cast<double>(row[i].z_max), row[i].total,
                                  static_cast<double>(cap(vec::splat(row[i].x_target)).z[0]), row[i].z_sum);
      losses.as<float>()[i] = static_cast<float>(result.loss);
      lse.as<float>()[i] = static_cast<float>(result.lse);
      if (is_correct) is_correct.as<uint8_t>()[i] = target[i] != kIgnoreIndex && row[i].top == target[i];
    }
  });
}

void cross_entropy_tile_gradient(const Tensor& d_tile, const LogitTile& tile,
                                 const CrossEntropyConfig& config, Stream& stream) {
  const OpSpan span(stream, "loss", traffic({d_tile, tile.logits, tile.lse, tile.targets}));
  if (span.plans()) return;
  check_tile(tile, "cross_entropy_tile_gradient");
  const int64_t N = tile.logits.dim(0), W = tile.logits.dim(1), n = valid_columns(config, tile.first, W);
  check_tensor(d_tile, d_tile.dtype, {N, W}, "cross_entropy_tile_gradient: d_tile");
  check_tensor(tile.lse, DType::f32, {N}, "cross_entropy_tile_gradient: lse");
  if constexpr (kHasCuda) {
    if (tile.logits.device == Device::kCuda)
      return cuda::cross_entropy_tile_gradient(d_tile, tile, config, stream);
  }
  const int32_t* target = tile.targets.as<int32_t>();
  with_dtype(d_tile.dtype, __func__, [&]<typename D>() {
    with_cap(config, [&](auto cap) {
      parallel_for(N, row_grain(W), [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
          D* d = d_tile.as<D>() + i * W;
          int64_t filled = 0;
          if (target[i] != kIgnoreIndex) {
            loss_terms::gradient_from_lse(d, tile.logits.as<float>() + i * W, n, cap, tile.lse.as<float>()[i],
                                          target[i] - tile.first, config);
            filled = n;
          }
          std::fill(d + filled, d + W, D(0.0f));
        }
      });
    });
  });
}

void cross_entropy_kept_gradient(const Tensor& d, const KeptExponentials& kept, const Tensor& rows,
                                 const LogitTile& all, const CrossEntropyConfig& config, Stream& stream) {
  const OpSpan span(stream, "loss", traffic({d, kept.values, kept.references, rows, all.lse, all.targets}));
  if (span.plans()) return;
  const int64_t N = kept.values.dim(0), W = kept.values.dim(1), n = valid_columns(config, all.first, W);
  check_kept(kept, N, "cross_entropy_kept_gradient");
  INGOT_CHECK(config.label_smoothing == 0 || config.cap == LogitCap::kNone,
              "cross_entropy_kept_gradient: label smoothing under a cap needs its slope, which is not kept");
  INGOT_CHECK(d.dtype == DType::bf16 || d.dtype == DType::f16,
              "cross_entropy_kept_gradient: d must be bf16 or f16, got {}", name(d.dtype));
  check_tensor(d, d.dtype, {N, W}, "cross_entropy_kept_gradient: d");
  check_tensor(all.lse, DType::f32, {N}, "cross_entropy_kept_gradient: lse");
  check_tensor(all.targets, DType::i32, {N}, "cross_entropy_kept_gradient: targets");
  const TileRow* row = tile_rows(rows, N, "cross_entropy_kept_gradient: rows");
  const int32_t* target = all.targets.as<int32_t>();
  with_dtype(d.dtype, __func__, [&]<typename D>() {
    with_cap(config, [&](auto cap) {
      parallel_for(N, row_grain(W), [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
          D* out = d.as<D>() + i * W;
          if (target[i] == kIgnoreIndex) {
            std::fill_n(out, W, D(0.0f));
            continue;
          }
          const float row_lse = all.lse.as<float>()[i];
          const loss_terms::GradientTerms terms(config, static_cast<double>(row_lse));
          kept_row_gradient(out, kept, i, n, row_lse, terms, config);
          const int64_t at = target[i] - all.first;
          if (at >= 0 && at < n)
            out[at] = D(loss_terms::target_gradient(cap(vec::splat(row[i].x_target)), row_lse, terms,
                                                    config.grad_scale));
          std::fill(out + n, out + W, D(0.0f));
        }
      });
    });
  });
}

}  // namespace ingot
