// Stand-ins for the products of cuBLASLt, which needs a device: the host's, so that what is around them can
// run.
#include "ingot/core/cuda_launch.h"
#include "ingot/core/float8.h"
#include "ingot/ops/cuda_fp8.h"
#include "ingot/ops/matmul_engines.h"

namespace ingot::cuda {
namespace {

void multiply(const Tensor& c, const Fp8Operand& a, const Fp8Operand& b, const Fp8ProductMode& mode) {
  const auto value = [](const Tensor& t, int64_t row, int64_t k) {
    const int64_t at = row * t.strides[0] + k;
    return t.dtype == DType::f8e5m2 ? static_cast<float>(t.as<f8e5m2>()[at])
                                    : static_cast<float>(t.as<f8e4m3>()[at]);
  };
  // One for the operand, or one for the row.
  const auto inverse = [](const Fp8Operand& of, int64_t row) {
    return of.inverse.as<float>()[of.inverse.elements() == 1 ? 0 : row];
  };
  for (int64_t m = 0; m < c.dim(0); ++m)
    for (int64_t n = 0; n < c.dim(1); ++n) {
      float sum = 0;
      for (int64_t k = 0; k < a.codes.dim(1); ++k) sum += value(a.codes, m, k) * value(b.codes, n, k);
      const float factor = inverse(a, m) * inverse(b, n) * mode.alpha;
      const int64_t at = m * c.strides[0] + n;
      if (c.dtype == DType::bf16)
        c.as<bf16>()[at] = bf16(sum * factor);
      else
        c.as<float>()[at] = sum * factor + (mode.accumulate ? c.as<float>()[at] : 0.0f);
    }
}

}  // namespace

void matmul(const MatmulProblem& p, Stream& stream) {
  simulated_cuda::enqueue(queue_of(stream), [p] {
    static Stream host;  // with the panels of the host's products
    portable::matmul(p, host);
  });
}

// As the library does, it takes only dims and places of whole 16 bytes, and not two operands of e5m2.
void matmul_fp8(const Tensor& c, const Fp8Operand& a, const Fp8Operand& b, const Fp8ProductMode& mode,
                Stream& stream) {
  INGOT_CHECK(a.codes.dim(1) == b.codes.dim(1) && c.dim(0) == a.codes.dim(0) && c.dim(1) == b.codes.dim(0),
              "matmul_fp8: {} from {} and {}", c.shape.to_string(), a.codes.shape.to_string(),
              b.codes.shape.to_string());
  const auto is_whole = [](int64_t n) { return n % 16 == 0; };
  for (const Tensor* t : {&a.codes, &b.codes})
    INGOT_CHECK(is_whole(t->dim(1)) && is_whole(t->strides[0]) &&
                    is_whole(static_cast<int64_t>(reinterpret_cast<uintptr_t>(t->data))),
                "matmul_fp8: an operand {} with rows of {} is not aligned", t->shape.to_string(),
                t->strides[0]);
  INGOT_CHECK(is_whole(c.dim(1)) && (a.codes.dtype == DType::f8e4m3 || b.codes.dtype == DType::f8e4m3),
              "matmul_fp8: N {}, or two operands of e5m2", c.dim(1));
  const bool is_by_row = a.inverse.elements() > 1 || b.inverse.elements() > 1;
  INGOT_CHECK(a.inverse.elements() == (is_by_row ? c.dim(0) : 1) &&
                  b.inverse.elements() == (is_by_row ? c.dim(1) : 1),
              "matmul_fp8: {} and {} scales", a.inverse.elements(), b.inverse.elements());
  simulated_cuda::enqueue(queue_of(stream), [=] { multiply(c, a, b, mode); });
}

}  // namespace ingot::cuda
