// cuBLASLt's bias epilogue reads bf16 where 8-bit operands have an f32 result, and it was given f32: with
// precision.compute = "f32", the default, precision.fp8 and a model with biases, every linear added wrong
// numbers.
#include "ingot/ops/cuda_fp8.h"
#include "tests/cuda/on_device.h"

namespace ingot::test {
namespace {

TEST(Fp8BiasRegression, F32ResultsAddTheBiasInF32) {
  Stream stream = cuda::make_stream();
  const int64_t M = 16, N = 32, K = 64;
  const Buffer zeros(DType::f8e4m3, {M, K}), weight(DType::f8e4m3, {N, K});
  std::memset(zeros.tensor().data, 0, zeros.tensor().bytes());
  std::memset(weight.tensor().data, 0, weight.tensor().bytes());
  Buffer one(DType::f32, {1});
  assign(one, {1.0});
  const Buffer bias = random_tensor(DType::f32, {N}, 1);
  const OnDevice x(zeros, stream), w(weight, stream), scale(one, stream), b(bias, stream),
      rounded(DType::f32, {N}, stream), y(DType::f32, {M, N}, stream);
  cuda::matmul_fp8(y, {x, scale}, {w, scale}, {.terms = {.bias = b, .rounded = rounded}}, stream);
  const Doubles got = to_doubles(y.to_host()), want = to_doubles(bias);
  for (size_t i = 0; i < got.size(); ++i) ASSERT_EQ(got[i], want[i % static_cast<size_t>(N)]) << i;
}

}  // namespace
}  // namespace ingot::test
