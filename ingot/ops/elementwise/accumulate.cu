#include "ingot/ops/accumulate.h"

#include "ingot/core/cuda/cuda_elementwise.h"

namespace ingot::cuda {
namespace {

// Reads two tensors and writes one.
template <int W, typename T>
struct Accumulate {
  float* to;
  const T* from;

  __device__ void operator()(int64_t i) const {
    Floats<W> sum = load<W>(to + i);
    const Floats<W> x = load<W>(from + i);
#pragma unroll
    for (int k = 0; k < W; ++k) sum.at[k] += x.at[k];
    store(to + i, sum);
  }
};

}  // namespace

void accumulate(const Tensor& to, const Tensor& from, Stream& stream) {
  const int64_t n = to.elements();
  with_dtype(from.dtype, "accumulate", [&]<typename T>() {
    with_width<T>(allows_wide(n, to, from), [&](auto width) {
      constexpr int W = decltype(width)::value;
      launch_elementwise<W>(n, "accumulate", stream, Accumulate<W, T>{to.as<float>(), from.as<T>()});
    });
  });
}

}  // namespace ingot::cuda
