// Stand-ins for the products of cuBLASLt, which needs a device: the host's, so that what is around them can
// run.
#include "ingot/core/cuda_launch.h"
#include "ingot/core/float8.h"
#include "ingot/ops/cuda_fp8.h"
#include "ingot/ops/matmul_engines.h"

namespace ingot::cuda {
namespace {

void multiply(const Tensor& c, const Tensor& a, const Tensor& b, const Tensor& a_inverse,
              const Tensor& b_inverse, bool accumulate) {
  const auto value = [](const Tensor& t, int64_t row, int64_t k) {
    const int64_t at = row * t.strides[0] + k;
    return t.dtype == DType::f8e5m2 ? static_cast<float>(t.as<f8e5m2>()[at])
                                    : static_cast<float>(t.as<f8e4m3>()[at]);
  };
  const float factor = a_inverse.as<float>()[0] * b_inverse.as<float>()[0];
  for (int64_t m = 0; m < c.dim(0); ++m)
    for (int64_t n = 0; n < c.dim(1); ++n) {
      float sum = 0;
      for (int64_t k = 0; k < a.dim(1); ++k) sum += value(a, m, k) * value(b, n, k);
      const int64_t at = m * c.strides[0] + n;
      if (c.dtype == DType::bf16)
        c.as<bf16>()[at] = bf16(sum * factor);
      else
        c.as<float>()[at] = sum * factor + (accumulate ? c.as<float>()[at] : 0.0f);
    }
}

}  // namespace

void matmul(const MatmulProblem& p, Stream& stream) {
  simulated_cuda::enqueue(queue_of(stream), [p] {
    static Stream host;  // with the panels of the host's products
    portable::matmul(p, host);
  });
}

void matmul_fp8(const Tensor& c, const Tensor& a, const Tensor& b, const Tensor& a_inverse,
                const Tensor& b_inverse, bool accumulate, bool /*is_fast*/, Stream& stream) {
  simulated_cuda::enqueue(queue_of(stream), [=] { multiply(c, a, b, a_inverse, b_inverse, accumulate); });
}

}  // namespace ingot::cuda
