#include "ingot/ops/bias.h"

#include "ingot/core/cuda/cuda_elementwise.h"
#include "ingot/ops/cuda_rows.h"

namespace ingot::cuda {
namespace {

template <int W, typename T>
struct AddBias {
  T* y;
  const float* b;
  uint32_t C;

  __device__ void operator()(int64_t i) const {
    Floats<W> v = load<W>(y + i);
    const Floats<W> added = load<W>(b + RowColumn(i, C).column);
#pragma unroll
    for (int k = 0; k < W; ++k) v.at[k] += added.at[k];
    store(y + i, v);
  }
};

template <int W, typename T>
struct BiasRows {
  const T* dy;
  int64_t C;

  __device__ Floats<W> operator()(int64_t n, int64_t column) const { return load<W>(dy + n * C + column); }
  __device__ float as_stored(float v) const { return v; }
};

}  // namespace

void bias_forward(const Tensor& y, const Tensor& b, Stream& stream) {
  const char* op = "bias_forward";
  const int64_t N = y.dim(0), C = y.dim(1);
  const uint32_t length = row_length(N, C, op);
  with_dtype(y.dtype, op, [&]<typename T>() {
    with_width<T>(allows_wide(C, y, b), [&](auto width) {
      constexpr int W = decltype(width)::value;
      launch_elementwise<W>(N * C, op, stream, AddBias<W, T>{y.as<T>(), b.as<float>(), length});
    });
  });
}

void bias_backward(const Tensor& db, const Tensor& dy, const Tensor& scratch, Stream& stream) {
  const char* op = "bias_backward";
  const int64_t N = dy.dim(0), C = dy.dim(1);
  with_dtype(dy.dtype, op, [&]<typename T>() {
    with_width<T>(allows_wide(C, dy), [&](auto width) {
      constexpr int W = decltype(width)::value;
      float* sums = row_scratch(scratch, 1, C, op);
      const BiasRows<W, T> rows{dy.as<T>(), C};
      if (dy.amax) return launch_sum_columns<W, true>(db, sums, N, op, stream, rows, amax_bits(dy));
      launch_sum_columns<W>(db, sums, N, op, stream, rows);
    });
  });
}

}  // namespace ingot::cuda
