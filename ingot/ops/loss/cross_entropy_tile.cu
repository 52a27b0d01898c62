#include "ingot/ops/loss/cross_entropy_tile.h"

#include <limits>

#include "ingot/core/cuda/cuda_elementwise.h"
#include "ingot/ops/loss/cuda_tile_gradient.h"
#include "ingot/ops/loss/tile_row_rules.h"

namespace ingot::cuda {
namespace {

using loss::make_tile;
using loss::Tile;
using softmax::Math;
using softmax::PartialSoftmax;

struct Begin {
  TileRow* rows;

  __device__ void operator()(int64_t i) const { rows[i] = kEmptyRow; }
};

// Adds the sums of a tile further to the right to those of `row`.
__device__ __forceinline__ void add_tile(TileRow& row, const PartialSoftmax& tile, int64_t first) {
  const double gap = static_cast<double>(tile.z_max) - static_cast<double>(row.z_max);
  const double total = static_cast<double>(tile.total);
  row.z_sum += static_cast<double>(tile.z_sum);
  if (row.top < 0 || tile.x_max > row.x_max) {
    row.total = (row.top < 0 ? 0 : row.total * std::exp(-gap)) + total;
    row.x_max = tile.x_max;
    row.z_max = tile.z_max;
    row.top = static_cast<int32_t>(first) + (tile.top < std::numeric_limits<int>::max() ? tile.top : 0);
  } else {
    row.total += total * std::exp(gap);
  }
}

// A block owns a row of the tile and reads it once.
template <int W, typename Cap>
__global__ void __launch_bounds__(kThreads) fold(TileRow* rows, Tile tile, Cap cap, bool is_smoothed) {
  const int64_t n = blockIdx.x;
  const int target = tile.targets[n];
  if (target < 0) return;
  const float* x = tile.x + n * tile.W;
  PartialSoftmax part = PartialSoftmax::none();
  for (int column = static_cast<int>(threadIdx.x) * W; column < tile.classes; column += kThreads * W) {
    const Floats<W> values = load<W>(x + column);
#pragma unroll
    for (int i = 0; i < W; ++i)
      if (column + i < tile.classes) part.add(values.at[i], column + i, cap, is_smoothed);
  }
  part = softmax::merge_block<kThreads>(part);
  if (threadIdx.x != 0) return;
  TileRow row = rows[n];
  add_tile(row, part, tile.first);
  const int64_t own = target - tile.first;
  if (own >= 0 && own < tile.classes) row.x_target = x[own];
  rows[n] = row;
}

struct Exp {
  __host__ __device__ double operator()(double x) const { return std::exp(x); }
};

// A thread merges the sums of a row, which the ranks' parts hold one after the other.
struct Merge {
  TileRow* rows;
  const TileRow* parts;
  const int32_t* targets;
  int64_t N, count, part_columns;

  __device__ void operator()(int64_t i) const {
    rows[i] = merged_row(parts + i, N, count, targets[i], part_columns, Exp{});
  }
};

template <typename Cap>
struct Finish {
  float* losses;
  uint8_t* is_correct;
  float* lse;
  const TileRow* rows;
  const int32_t* targets;
  int64_t vocab;
  double label_smoothing, z_loss;
  Cap cap;

  __device__ void operator()(int64_t i) const {
    const int target = targets[i];
    lse[i] = 0;
    if (is_correct) is_correct[i] = 0;
    losses[i] = target == kIgnoreIndex ? 0.0f : std::numeric_limits<float>::quiet_NaN();
    if (target < 0 || target >= vocab) return;
    const TileRow row = rows[i];
    const double log_total = std::log(row.total), whole = static_cast<double>(row.z_max) + log_total;
    const double z_target = static_cast<double>(cap(row.x_target).z);
    double loss = log_total + (static_cast<double>(row.z_max) - z_target);
    if (label_smoothing > 0) loss += label_smoothing * (z_target - row.z_sum / static_cast<double>(vocab));
    losses[i] = static_cast<float>(loss + z_loss * whole * whole);
    lse[i] = static_cast<float>(whole);
    if (is_correct) is_correct[i] = row.top == target ? 1 : 0;
  }
};

// A block owns a row of the tile, reads it once and writes its gradient.
template <int W, typename D, typename Cap>
__global__ void __launch_bounds__(kThreads) gradient(D* d_tile, loss::TileGradient<Cap> of) {
  const int64_t n = blockIdx.x;
  const auto row = of.row(n);
  D* d = d_tile + n * of.tile.W;
  for (int column = static_cast<int>(threadIdx.x) * W; column < of.tile.W; column += kThreads * W)
    store(d + column, of.template at<W>(row, column));
}

}  // namespace

void cross_entropy_begin(const Tensor& rows, Stream& stream) {
  launch_elementwise<1>(rows.dim(0), "cross_entropy_begin", stream, Begin{tile_rows_of(rows)});
}

void cross_entropy_fold(const Tensor& rows, const LogitTile& tile, const CrossEntropyConfig& config,
                        Stream& stream) {
  const char* op = "cross_entropy_fold";
  const Tile part = make_tile(tile, config);
  if (part.classes == 0) return;
  with_width<float>(part.W % 4 == 0 && is_aligned(tile.logits.data), [&](auto width) {
    with_cap_rule<Math>(config, [&](auto cap) {
      launch({stream, op, dim3(blocks_for(tile.logits.dim(0), 1)), dim3(kThreads)},
             fold<decltype(width)::value, decltype(cap)>, tile_rows_of(rows), part, cap,
             config.label_smoothing > 0);
    });
  });
}

void cross_entropy_merge(const Tensor& rows, const Tensor& parts, const Tensor& targets, int64_t part_columns,
                         Stream& stream) {
  launch_elementwise<1>(rows.dim(0), "cross_entropy_merge", stream,
                        Merge{tile_rows_of(rows), tile_rows_of(parts), targets.as<int32_t>(), rows.dim(0),
                              parts.dim(0), part_columns});
}

void cross_entropy_finish(const Tensor& losses, const Tensor& is_correct, const Tensor& lse,
                          const Tensor& rows, const Tensor& targets, const CrossEntropyConfig& config,
                          Stream& stream) {
  with_cap_rule<Math>(config, [&](auto cap) {
    launch_elementwise<1>(rows.dim(0), "cross_entropy_finish", stream,
                          Finish<decltype(cap)>{losses.as<float>(), optional<uint8_t>(is_correct),
                                                lse.as<float>(), tile_rows_of(rows), targets.as<int32_t>(),
                                                config.vocab, static_cast<double>(config.label_smoothing),
                                                static_cast<double>(config.z_loss), cap});
  });
}

void cross_entropy_tile_gradient(const Tensor& d_tile, const LogitTile& tile,
                                 const CrossEntropyConfig& config, Stream& stream) {
  const char* op = "cross_entropy_tile_gradient";
  const bool is_wide = tile.logits.dim(1) % 4 == 0 && is_aligned(tile.logits.data) && is_aligned(d_tile.data);
  with_dtype(d_tile.dtype, op, [&]<typename D>() {
    with_width<float>(is_wide, [&](auto width) {
      loss::with_gradient(tile, config, [&](auto of) {
        launch({stream, op, dim3(blocks_for(tile.logits.dim(0), 1)), dim3(kThreads)},
               gradient<decltype(width)::value, D, decltype(of.cap)>, d_tile.as<D>(), of);
      });
    });
  });
}

}  // namespace ingot::cuda
