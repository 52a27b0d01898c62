#include "ingot/optim/rules/cuda_mean_squares.h"

#include <algorithm>

#include "ingot/core/copy.h"
#include "ingot/ops/cuda_rows.h"
#include "ingot/optim/cuda_step_factor.h"
#include "ingot/optim/cuda_update.h"

namespace ingot::cuda {
namespace {

// Each block sums one row: to = sum / divisor, or with kAdds +=.
template <int W, bool kAdds>
__global__ void __launch_bounds__(kThreads)
    rows_of_squares(float* to, const float* x, int64_t C, StepFactor by, float divisor) {
  const float scale = by.value();
  const float* row = x + int64_t{blockIdx.x} * C;
  float sum = 0;
  for (int64_t c = int64_t{threadIdx.x} * W; c < C; c += int64_t{kThreads} * W) {
    const Floats<W> v = load<W>(row + c);
#pragma unroll
    for (int k = 0; k < W; ++k) {
      const float value = v.at[k] * scale;
      sum += value * value;
    }
  }
  sum = group_sum<kThreads>(sum);
  if (threadIdx.x == 0) to[blockIdx.x] = (kAdds ? to[blockIdx.x] : 0.0f) + sum / divisor;
}

// The squares of row r times `part`.
template <int W>
struct ColumnSquares {
  const float* x;
  int64_t C;
  StepFactor by;
  float part;

  __device__ Floats<W> operator()(int64_t r, int64_t column) const {
    const float scale = by.value();
    Floats<W> v = load<W>(x + r * C + column);
#pragma unroll
    for (int k = 0; k < W; ++k) {
      const float value = v.at[k] * scale;
      v.at[k] = value * value * part;
    }
    return v;
  }
};

// The elements that do not fill a pack of 4 are added one by one. There are as many blocks as x can use; they
// write zeros as the parts of the blocks that a longer x would have.
__global__ void __launch_bounds__(kThreads)
    parts_of_squares(float* parts, const float* x, int64_t n, bool is_wide) {
  constexpr int W = 4;
  const int64_t packed = is_wide ? n / W * W : 0;
  float sum = 0;
  for (int64_t i = (int64_t{blockIdx.x} * kThreads + threadIdx.x) * W; i < packed;
       i += int64_t{gridDim.x} * kThreads * W) {
    const Floats<W> v = load<W>(x + i);
#pragma unroll
    for (int k = 0; k < W; ++k) sum += v.at[k] * v.at[k];
  }
  for (int64_t i = packed + int64_t{blockIdx.x} * kThreads + threadIdx.x; i < n;
       i += int64_t{gridDim.x} * kThreads)
    sum += x[i] * x[i];
  sum = group_sum<kThreads>(sum);
  for (unsigned part = blockIdx.x + threadIdx.x * gridDim.x; part < kSquareParts;
       part += kThreads * gridDim.x)
    parts[part] = part == blockIdx.x ? sum : 0.0f;
}

void check_matrix(const Tensor& x, const char* op) {
  INGOT_CHECK(x.rank() == 2 && x.is_contiguous(), "{}: x must be (R, C), contiguous, got {}", op,
              x.shape.to_string());
  check_tensor(x, DType::f32, x.shape, op);
}

template <bool kAdds>
void launch_rows(const Tensor& to, const Tensor& x, StepFactor by, float divisor, const char* op,
                 Stream& stream) {
  check_matrix(x, op);
  const int64_t R = x.dim(0), C = x.dim(1);
  check_tensor(to, DType::f32, {R}, op);
  with_width<float>(C % 4 == 0 && is_aligned(x.data), [&](auto width) {
    launch({stream, op, dim3(blocks_for(R, 1)), dim3(kThreads)},
           rows_of_squares<decltype(width)::value, kAdds>, to.as<float>(),
           static_cast<const float*>(x.as<float>()), C, by, divisor);
  });
}

// to += the sums of the columns' squares times `part`.
void launch_columns(const Tensor& to, const Tensor& x, StepFactor by, float part, const Tensor& parts,
                    const char* op, Stream& stream) {
  check_matrix(x, op);
  const int64_t R = x.dim(0), C = x.dim(1);
  check_tensor(to, DType::f32, {C}, op);
  with_width<float>(C % 4 == 0 && is_aligned(x.data), [&](auto width) {
    constexpr int W = decltype(width)::value;
    launch_sum_columns<W>(to, row_scratch(parts, 1, C, op), R, op, stream,
                          ColumnSquares<W>{x.as<float>(), C, by, part});
  });
}

}  // namespace

void row_mean_squares(const Tensor& means, const Tensor& x, float scale, const Tensor& factor,
                      Stream& stream) {
  launch_rows<false>(means, x, step_factor(scale, factor), static_cast<float>(x.dim(1)), "row_mean_squares",
                     stream);
}

void add_row_squares(const Tensor& sums, const Tensor& x, float scale, const Tensor& factor, Stream& stream) {
  launch_rows<true>(sums, x, step_factor(scale, factor), 1, "add_row_squares", stream);
}

void column_mean_squares(const Tensor& means, const Tensor& x, float scale, const Tensor& factor,
                         const Tensor& parts, Stream& stream) {
  fill_zero(means, stream);
  launch_columns(means, x, step_factor(scale, factor), 1 / static_cast<float>(x.dim(0)), parts,
                 "column_mean_squares", stream);
}

void add_column_squares(const Tensor& sums, const Tensor& x, float scale, const Tensor& factor,
                        const Tensor& parts, Stream& stream) {
  launch_columns(sums, x, step_factor(scale, factor), 1, parts, "add_column_squares", stream);
}

void sum_squares_of(const Tensor& parts, const Tensor& x, Stream& stream) {
  const char* op = "sum_squares_of";
  check_tensor(parts, DType::f32, {kSquareParts}, op);
  const bool is_wide = is_aligned(x.data);
  const int64_t n = x.elements(), blocks = blocks_for(n, int64_t{kThreads} * (is_wide ? 4 : 1));
  const auto used = static_cast<unsigned>(std::clamp<int64_t>(blocks, 1, kSquareParts));
  launch({stream, op, dim3(used), dim3(kThreads)}, parts_of_squares, parts.as<float>(),
         static_cast<const float*>(x.as<float>()), n, is_wide);
}

}  // namespace ingot::cuda
