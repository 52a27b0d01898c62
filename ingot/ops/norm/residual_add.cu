#include "ingot/ops/residual_add.h"

#include "ingot/core/cuda/cuda_elementwise.h"

namespace ingot::cuda {
namespace {

// Reads two tensors and writes one.
template <int W, typename T>
struct Add {
  T* sum;
  const T *x, *residual;

  __device__ void operator()(int64_t i) const {
    Floats<W> a = load<W>(x + i);
    const Floats<W> b = load<W>(residual + i);
#pragma unroll
    for (int k = 0; k < W; ++k) a.at[k] += b.at[k];
    store(sum + i, a);
  }
};

}  // namespace

void residual_add(const Tensor& sum, const Tensor& x, const Tensor& residual, Stream& stream) {
  const int64_t n = x.elements();
  with_dtype(x.dtype, "residual_add", [&]<typename T>() {
    with_width<T>(allows_wide(n, sum, x, residual), [&](auto width) {
      constexpr int W = decltype(width)::value;
      launch_elementwise<W>(n, "residual_add", stream, Add<W, T>{sum.as<T>(), x.as<T>(), residual.as<T>()});
    });
  });
}

}  // namespace ingot::cuda
