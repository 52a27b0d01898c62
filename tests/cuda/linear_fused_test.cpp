// Matrix products with fused bias, GELU and bias gradient, on either device, against double-precision
// sums over the same operands.
#include "ingot/ops/linear_fused.h"

#include <unistd.h>

#include "ingot/ops/matmul.h"
#include "ingot/ops/row_sum.h"
#include "ingot/ops/tf32.h"
#include "tests/cuda/on_device.h"

namespace ingot::test {
namespace {

struct LinearFusedCase {
  DType dtype;
  int64_t M, N,
      K;  // bf16 rows of 20 elements are not a multiple of 16 bytes, so cuBLASLt cannot fuse a second matrix
};

std::string linear_fused_case_name(const ::testing::TestParamInfo<LinearFusedCase>& info) {
  return fmt::format("{}_{}x{}x{}", name(info.param.dtype), info.param.M, info.param.N, info.param.K);
}

double at(const Doubles& x, int64_t i) { return x[static_cast<size_t>(i)]; }

double gelu(double x) {
  return 0.5 * x * (1 + std::tanh(std::sqrt(2 / 3.14159265358979323846) * (x + 0.044715 * x * x * x)));
}
double gelu_slope(double x) { return (gelu(x + 1e-5) - gelu(x - 1e-5)) / 2e-5; }

class CudaLinearFused : public ::testing::TestWithParam<LinearFusedCase>, protected OnCuda {
 protected:
  // The error comes from sums over K (for the bias gradient over M) of products of order 1, and
  // two roundings of the result.
  double tolerance(int64_t terms) const {
    return 4 * unit_roundoff(c.dtype) + 8 * unit_roundoff(DType::f32) * std::sqrt(static_cast<double>(terms));
  }
  void expect_near_sum(const OnDevice& got, const Doubles& want, int64_t terms, const char* what) const {
    const double spread = std::sqrt(static_cast<double>(terms));
    expect_close(got.to_host(), want, tolerance(terms), what, spread);
  }
  Doubles with_bias() const {
    Doubles want(static_cast<size_t>(c.M * c.N));
    const Doubles xs = to_doubles(x), ws = to_doubles(w), bs = to_doubles(b);
    for (int64_t m = 0; m < c.M; ++m)
      for (int64_t n = 0; n < c.N; ++n) {
        double sum = at(bs, n);
        for (int64_t k = 0; k < c.K; ++k) sum += at(xs, m * c.K + k) * at(ws, n * c.K + k);
        want[static_cast<size_t>(m * c.N + n)] = sum;
      }
    return want;
  }

  LinearFusedCase c = GetParam();
  Buffer x = random_tensor(c.dtype, {c.M, c.K}, 1), w = random_tensor(c.dtype, {c.N, c.K}, 2);
  Buffer b = random_tensor(DType::f32, {c.N}, 3), dy = random_tensor(c.dtype, {c.M, c.N}, 4);
  OnDevice x_there = put(x), w_there = put(w), b_there = put(b), dy_there = put(dy);
};

TEST_P(CudaLinearFused, BiasEqualsTheSeparateOperation) {
  const OnDevice y = result(c.dtype, {c.M, c.N}), rounded = result(c.dtype, {c.N});
  linear_sum(y, x_there, w_there, {.bias = b_there, .rounded = rounded}, stream);
  expect_near_sum(y, with_bias(), c.K, "y");
}

TEST_P(CudaLinearFused, SumWithTheResidualStreamEqualsTheSeparateOperations) {
  const Buffer base = random_tensor(c.dtype, {c.M, c.N}, 5);
  const OnDevice base_there = put(base), rounded = result(c.dtype, {c.N});
  const OnDevice sum = result(c.dtype, {c.M, c.N}), without_bias = result(c.dtype, {c.M, c.N});
  linear_sum(sum, x_there, w_there, {.bias = b_there, .rounded = rounded, .base = base_there}, stream);
  linear_sum(without_bias, x_there, w_there, {.base = base_there}, stream);
  Doubles want = with_bias();
  const Doubles bases = to_doubles(base), bs = to_doubles(b);
  for (size_t i = 0; i < want.size(); ++i) want[i] += bases[i];
  expect_near_sum(sum, want, c.K, "base + x wᵀ + b");
  for (size_t i = 0; i < want.size(); ++i) want[i] -= bs[i % static_cast<size_t>(c.N)];
  expect_near_sum(without_bias, want, c.K, "base + x wᵀ");
  expect_same_bits(base_there.to_host(), base, "base");
}

TEST_P(CudaLinearFused, GeluEqualsTheSeparateOperation) {
  const OnDevice act = result(c.dtype, {c.M, c.N}), pre = result(c.dtype, {c.M, c.N});
  const OnDevice rounded = result(c.dtype, {c.N});
  linear_gelu(act, pre, x_there, w_there, b_there, rounded, stream);
  Doubles want = with_bias();
  expect_near_sum(pre, want, c.K, "pre");
  for (double& v : want) v = gelu(v);
  expect_near_sum(act, want, c.K, "act");
}

TEST_P(CudaLinearFused, GradientThroughGeluEqualsTheSeparateOperation) {
  const Buffer pre = random_tensor(c.dtype, {c.M, c.K}, 5);
  const OnDevice pre_there = put(pre), d_pre = result(c.dtype, {c.M, c.K});
  linear_gelu_backward(d_pre, dy_there, w_there, pre_there, stream);
  Doubles want(static_cast<size_t>(c.M * c.K));
  const Doubles dys = to_doubles(dy), ws = to_doubles(w), pres = to_doubles(pre);
  for (int64_t m = 0; m < c.M; ++m)
    for (int64_t k = 0; k < c.K; ++k) {
      double sum = 0;
      for (int64_t n = 0; n < c.N; ++n) sum += at(dys, m * c.N + n) * at(ws, n * c.K + k);
      want[static_cast<size_t>(m * c.K + k)] = sum * gelu_slope(at(pres, m * c.K + k));
    }
  expect_near_sum(d_pre, want, c.N, "d_pre");
}

TEST_P(CudaLinearFused, GradientsOfWeightAndBiasEqualTheSeparateOperations) {
  const Buffer dw = random_tensor(DType::f32, {c.N, c.K}, 6), db = random_tensor(DType::f32, {c.N}, 7);
  const OnDevice dw_there = put(dw), db_there = put(db);
  const OnDevice sums = result(DType::f32, {row_sum_parts(Device::kCuda), c.N});
  linear_weight_gradients({dw_there}, db_there, dy_there, x_there, sums, stream);
  Doubles want_dw = to_doubles(dw), want_db = to_doubles(db);
  const Doubles dys = to_doubles(dy), xs = to_doubles(x);
  for (int64_t m = 0; m < c.M; ++m)
    for (int64_t n = 0; n < c.N; ++n) {
      want_db[static_cast<size_t>(n)] += at(dys, m * c.N + n);
      for (int64_t k = 0; k < c.K; ++k)
        want_dw[static_cast<size_t>(n * c.K + k)] += at(dys, m * c.N + n) * at(xs, m * c.K + k);
    }
  const double spread = std::sqrt(static_cast<double>(c.M)), tight = 16 * unit_roundoff(DType::f32) * spread;
  expect_close(dw_there.to_host(), want_dw, tight, "dw", spread);
  expect_close(db_there.to_host(), want_db, tight, "db", spread);
}

// The CPU computes the same with the ops that the fused op consists of.
TEST_P(CudaLinearFused, EqualsTheCpu) {
  Stream cpu;
  Buffer pre(c.dtype, {c.M, c.N}), act(c.dtype, {c.M, c.N});
  linear_gelu(act, pre, x, w, b, {}, cpu);
  const Doubles want = with_bias();
  const double spread = std::sqrt(static_cast<double>(c.K));
  expect_close(pre, want, tolerance(c.K), "pre", spread);
  Buffer y(c.dtype, {c.M, c.N});
  linear_sum(y, x, w, {.bias = b}, cpu);
  expect_same_bits(y, pre, "y");
}

INSTANTIATE_TEST_SUITE_P(Shapes, CudaLinearFused,
                         ::testing::Values(LinearFusedCase{DType::f32, 24, 40, 72},
                                           LinearFusedCase{DType::bf16, 24, 40, 72},
                                           LinearFusedCase{DType::bf16, 17, 20, 36},
                                           LinearFusedCase{DType::f32, 5, 33, 7}),
                         linear_fused_case_name);

// The first product of a shape is computed several times, both ways, to see which is faster. The shape is a
// new one in almost every process, whose choice is not on disk yet.
class FirstProduct : public ::testing::Test, protected OnCuda {};

TEST_F(FirstProduct, IsAddedOnce) {
  const int64_t M = 2, N = 8 * (1 + ::getpid() % 4096), K = 8;
  const Buffer dy = random_tensor(DType::f32, {M, N}, 1), x = random_tensor(DType::f32, {M, K}, 2);
  const OnDevice dy_there = put(dy), x_there = put(x);
  const OnDevice dw = put(zeros(DType::f32, {N, K})), db = put(zeros(DType::f32, {N}));
  const OnDevice again_dw = put(zeros(DType::f32, {N, K})), again_db = put(zeros(DType::f32, {N}));
  const OnDevice sums = result(DType::f32, {row_sum_parts(Device::kCuda), N});
  linear_weight_gradients({dw}, db, dy_there, x_there, sums, stream);
  linear_weight_gradients({again_dw}, again_db, dy_there, x_there, sums, stream);
  expect_same_bits(dw.to_host(), again_dw.to_host(), "dw");
  expect_same_bits(db.to_host(), again_db.to_host(), "db");
}

// tf32 keeps 10 bits of an operand's mantissa: results differ from f32's by about 2^-11, and
// only if the stream allows it.
TEST(CudaTf32, RoundsF32OperandsOnlyWhereAllowed) {
  Stream stream = cuda::make_stream();
  constexpr int64_t kSize = 64;
  const Buffer a = random_tensor(DType::f32, {kSize, kSize}, 1),
               b = random_tensor(DType::f32, {kSize, kSize}, 2);
  const OnDevice a_there(a, stream), b_there(b, stream);
  const Doubles as = to_doubles(a), bs = to_doubles(b);
  Doubles want(static_cast<size_t>(kSize * kSize));
  for (int64_t m = 0; m < kSize; ++m)
    for (int64_t n = 0; n < kSize; ++n)
      for (int64_t k = 0; k < kSize; ++k)
        want[static_cast<size_t>(m * kSize + n)] += at(as, m * kSize + k) * at(bs, n * kSize + k);
  constexpr double kTf32 = 0x1p-11;  // rounding of one operand
  const double spread = std::sqrt(static_cast<double>(kSize)), f32 = 8 * unit_roundoff(DType::f32) * kSize;
  for (const bool is_allowed : {false, true}) {
    allow_tf32(stream, is_allowed);
    const OnDevice c(DType::f32, {kSize, kSize}, stream);
    matmul(c, a_there, b_there, MatmulForm::kNT, false, stream);
    const Doubles got = to_doubles(c.to_host());
    double largest = 0;
    for (size_t i = 0; i < want.size(); ++i) largest = std::max(largest, std::abs(got[i] - want[i]));
    EXPECT_LE(largest, is_allowed ? 8 * kTf32 * spread : f32);
    if (is_allowed) {
      EXPECT_GT(largest, 2 * f32);
    }
  }
}

}  // namespace
}  // namespace ingot::test
