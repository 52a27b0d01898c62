#include "ingot/ops/loss/kahan.h"

#include "ingot/core/cuda/cuda_elementwise.h"

namespace ingot::cuda {
namespace {

// Reads three tensors and writes two. nvcc preserves the order of the additions.
template <int W>
struct Compensate {
  float *sum, *lost;
  const float* x;

  __device__ void operator()(int64_t i) const {
    Floats<W> s = load<W>(static_cast<const float*>(sum + i)),
              l = load<W>(static_cast<const float*>(lost + i));
    const Floats<W> terms = load<W>(x + i);
#pragma unroll
    for (int k = 0; k < W; ++k) {
      const float y = terms.at[k] - l.at[k], total = s.at[k] + y;
      l.at[k] = (total - s.at[k]) - y;
      s.at[k] = total;
    }
    store(sum + i, s);
    store(lost + i, l);
  }
};

}  // namespace

void kahan_add(const Tensor& sum, const Tensor& lost, const Tensor& x, Stream& stream) {
  const int64_t n = sum.elements();
  with_width<float>(allows_wide(n, sum, lost, x), [&](auto width) {
    constexpr int W = decltype(width)::value;
    launch_elementwise<W>(n, "kahan_add", stream,
                          Compensate<W>{sum.as<float>(), lost.as<float>(), x.as<float>()});
  });
}

}  // namespace ingot::cuda
