#include "ingot/ops/mix.h"

#include "ingot/core/cuda/cuda_elementwise.h"
#include "ingot/ops/cuda_rows.h"

namespace ingot::cuda {
namespace {

// StridedRows of a tensor with adjacent columns; data is null if the tensor is absent.
template <typename T>
struct StridedRows {
  T* data = nullptr;
  int64_t stride = 0;

  explicit StridedRows(const Tensor& t) : data(optional<T>(t)), stride(t ? t.strides[0] : 0) {}
  __device__ __forceinline__ T* at(int64_t row, int64_t column) const { return data + row * stride + column; }
};

template <typename... Tensors>
bool strided_rows_allow_wide(int64_t C, const Tensors&... tensors) {
  return allows_wide(C, tensors...) && ((!tensors || tensors.strides[0] % 8 == 0) && ...);
}

__device__ __forceinline__ float mix_factor(const float* scalar) { return scalar ? *scalar : 1.0f; }

// Reads x and z once and writes y once.
template <int W, typename T>
struct Mixed {
  StridedRows<T> y, x, z;
  const float *a, *b;
  uint32_t C;

  __device__ void operator()(int64_t i) const {
    const RowColumn at(i, C);
    const float of_x = mix_factor(a), of_z = mix_factor(b);
    Floats<W> v = load<W>(x.at(at.row, at.column));
    Floats<W> second{};
    if (z.data) second = load<W>(z.at(at.row, at.column));
#pragma unroll
    for (int k = 0; k < W; ++k) v.at[k] = v.at[k] * of_x + second.at[k] * of_z;
    store(y.at(at.row, at.column), v);
  }
};

template <int W, typename T>
struct MixGradients {
  StridedRows<T> dx, dz, dy, x, z;
  const float *a, *b;
  bool has_da, has_db;
};

// A block adds the products of a contiguous range of rows to one partial sum of each scalar. The kernel reads
// dy, and x and z where their scalars are learned, once, and writes dx and dz once.
template <int W, typename T>
__global__ void __launch_bounds__(kThreads) mix_backward(float* __restrict__ of_a, float* __restrict__ of_b,
                                                         int64_t N, int64_t C, MixGradients<W, T> f) {
  const PartRows rows(N, blockIdx.x, gridDim.x);
  const float a = mix_factor(f.a), b = mix_factor(f.b);
  float sum_a = 0, sum_b = 0;
  for (int64_t n = rows.begin; n < rows.end; ++n)
    for (int64_t c = int64_t{threadIdx.x} * W; c < C; c += int64_t{kThreads} * W) {
      const Floats<W> d = load<W>(f.dy.at(n, c));
      if (f.has_da) {
        const Floats<W> x = load<W>(f.x.at(n, c));
#pragma unroll
        for (int k = 0; k < W; ++k) sum_a += d.at[k] * x.at[k];
      }
      if (f.has_db) {
        const Floats<W> z = load<W>(f.z.at(n, c));
#pragma unroll
        for (int k = 0; k < W; ++k) sum_b += d.at[k] * z.at[k];
      }
      const auto write = [&](const StridedRows<T>& to, float by) {
        if (!to.data) return;
        Floats<W> v = d;
#pragma unroll
        for (int k = 0; k < W; ++k) v.at[k] *= by;
        store(to.at(n, c), v);
      };
      write(f.dx, a);
      write(f.dz, b);
    }
  sum_a = group_sum<kThreads>(sum_a);
  sum_b = group_sum<kThreads>(sum_b);
  if (threadIdx.x != 0) return;
  of_a[blockIdx.x] = sum_a;
  of_b[blockIdx.x] = sum_b;
}

}  // namespace

void mix_forward(const Tensor& y, const MixTerms& terms, Stream& stream) {
  const int64_t N = y.dim(0), C = y.dim(1);
  const uint32_t columns = row_length(N, C, "mix_forward");
  with_dtype(y.dtype, "mix_forward", [&]<typename T>() {
    with_width<T>(strided_rows_allow_wide(C, y, terms.x, terms.z), [&](auto width) {
      constexpr int W = decltype(width)::value;
      launch_elementwise<W>(N * C, "mix_forward", stream,
                            Mixed<W, T>{StridedRows<T>(y), StridedRows<T>(terms.x), StridedRows<T>(terms.z),
                                        optional<float>(terms.a), optional<float>(terms.b), columns});
    });
  });
}

void mix_backward(const MixTerms& d, const Tensor& dy, const MixTerms& terms, const Tensor& scratch,
                  Stream& stream) {
  const int64_t N = dy.dim(0), C = dy.dim(1), parts = row_part_count(N);
  float *of_a = scratch.as<float>(), *of_b = of_a + kRowParts;
  with_dtype(dy.dtype, "mix_backward", [&]<typename T>() {
    with_width<T>(strided_rows_allow_wide(C, dy, d.x, d.z, terms.x, terms.z), [&](auto width) {
      constexpr int W = decltype(width)::value;
      const MixGradients<W, T> f{StridedRows<T>(d.x),      StridedRows<T>(d.z),     StridedRows<T>(dy),
                                 StridedRows<T>(terms.x),  StridedRows<T>(terms.z), optional<float>(terms.a),
                                 optional<float>(terms.b), static_cast<bool>(d.a),  static_cast<bool>(d.b)};
      launch({stream, "mix_backward", dim3(static_cast<unsigned>(parts)), dim3(kThreads)}, mix_backward<W, T>,
             of_a, of_b, N, C, f);
    });
  });
  if (d.a) add_row_parts(d.a, of_a, parts, stream);
  if (d.b) add_row_parts(d.b, of_b, parts, stream);
}

}  // namespace ingot::cuda
