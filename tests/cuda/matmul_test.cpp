// Matrix products on a device against double-precision sums over the same operands.
#include "ingot/ops/matmul.h"

#include "ingot/core/float8.h"
#include "ingot/ops/cast_fp8.h"
#include "ingot/ops/cuda_fp8.h"
#include "tests/cuda/on_device.h"

namespace ingot::test {
namespace {

struct MatmulCase {
  DType in, out;
  MatmulForm form;
  int64_t M, N, K;
  bool accumulate;
};

std::string matmul_case_name(const ::testing::TestParamInfo<MatmulCase>& info) {
  const MatmulCase& c = info.param;
  return fmt::format("{}_{}_{}_{}x{}x{}{}", name(c.in), name(c.out),
                     c.form == MatmulForm::kNT   ? "NT"
                     : c.form == MatmulForm::kNN ? "NN"
                                                 : "TN",
                     c.M, c.N, c.K, c.accumulate ? "_add" : "");
}

Doubles product(const Doubles& a, const Doubles& b, const MatmulCase& c) {
  Doubles result(static_cast<size_t>(c.M * c.N));
  const auto at = [](const Doubles& x, int64_t i) { return x[static_cast<size_t>(i)]; };
  for (int64_t m = 0; m < c.M; ++m)
    for (int64_t n = 0; n < c.N; ++n)
      for (int64_t k = 0; k < c.K; ++k)
        result[static_cast<size_t>(m * c.N + n)] +=
            at(a, c.form == MatmulForm::kTN ? k * c.M + m : m * c.K + k) *
            at(b, c.form == MatmulForm::kNT ? n * c.K + k : k * c.N + n);
  return result;
}

class CudaMatmul : public ::testing::TestWithParam<MatmulCase>, protected OnCuda {
 protected:
  MatmulCase c = GetParam();
  bool is_tn = c.form == MatmulForm::kTN, is_nt = c.form == MatmulForm::kNT;
  Buffer a = random_tensor(c.in, {is_tn ? c.K : c.M, is_tn ? c.M : c.K}, 1);
  Buffer b = random_tensor(c.in, {is_nt ? c.N : c.K, is_nt ? c.K : c.N}, 2);
  Buffer old = random_tensor(c.out, {c.M, c.N}, 3);
};

TEST_P(CudaMatmul, ProductsEqualTheReference) {
  const OnDevice to = put(old), a_there = put(a), b_there = put(b);
  scaled_matmul(to, a_there, b_there, c.form, 0.5f, c.accumulate, stream);
  Doubles want = product(to_doubles(a), to_doubles(b), c);
  for (size_t i = 0; i < want.size(); ++i)
    want[i] = 0.5 * want[i] + (c.accumulate ? to_doubles(old)[i] : 0.0);
  const double spread = std::sqrt(static_cast<double>(c.K));
  expect_close(to.to_host(), want, 2 * unit_roundoff(c.out) + 8 * unit_roundoff(DType::f32) * spread, "c",
               spread);
}

std::vector<MatmulCase> matmul_cases() {
  std::vector<MatmulCase> all;
  for (DType in : {DType::f32, DType::bf16, DType::f16})
    for (MatmulForm form : {MatmulForm::kNT, MatmulForm::kNN, MatmulForm::kTN}) {
      all.push_back({in, in, form, 24, 40, 72, false});
      all.push_back({in, DType::f32, form, 17, 33, 5, true});
    }
  return all;
}

INSTANTIATE_TEST_SUITE_P(Forms, CudaMatmul, ::testing::ValuesIn(matmul_cases()), matmul_case_name);

// The codes of a product's operands, 16 and 32 times random numbers, and their values.
constexpr MatmulCase kFp8Case{DType::f8e4m3, DType::bf16, MatmulForm::kNT, 48, 64, 96, false};

struct Fp8Codes {
  explicit Fp8Codes(DType a_format = DType::f8e4m3) : a8(a_format, {kFp8Case.M, kFp8Case.K}) {
    Stream cpu;
    Fp8Stats stats;
    cast_to_fp8(a8, random_tensor(DType::f32, a8.tensor().shape, 1), 16, stats, cpu);
    cast_to_fp8(b8, random_tensor(DType::f32, b8.tensor().shape, 2), 32, stats, cpu);
    cast_from_fp8(a, a8, cpu);
    cast_from_fp8(b, b8, cpu);
  }
  Doubles product() const { return test::product(to_doubles(a), to_doubles(b), kFp8Case); }

  Buffer a8, b8{DType::f8e4m3, {kFp8Case.N, kFp8Case.K}};
  Buffer a{DType::f32, {kFp8Case.M, kFp8Case.K}}, b{DType::f32, {kFp8Case.N, kFp8Case.K}};
};

// Each row of each operand has its own scale.
TEST(CudaMatmulFp8, RowwiseScalesEqualTheReference) {
  Stream stream = cuda::make_stream();
  const MatmulCase& c = kFp8Case;
  const Fp8Codes codes;
  Doubles want = codes.product();
  Doubles a_inverses, b_inverses;
  for (int64_t m = 0; m < c.M; ++m) a_inverses.push_back(std::ldexp(1.0, -static_cast<int>(m % 5)) / 16);
  for (int64_t n = 0; n < c.N; ++n) b_inverses.push_back(std::ldexp(1.0, -static_cast<int>(n % 3)) / 32);
  for (size_t i = 0; i < want.size(); ++i)
    want[i] *= a_inverses[i / static_cast<size_t>(c.N)] * b_inverses[i % static_cast<size_t>(c.N)];
  Buffer a_inverse(DType::f32, {c.M}), b_inverse(DType::f32, {c.N});
  assign(a_inverse, a_inverses);
  assign(b_inverse, b_inverses);
  const OnDevice a_there(codes.a8, stream), b_there(codes.b8, stream), of_a(a_inverse, stream),
      of_b(b_inverse, stream);
  for (DType out : {DType::bf16, DType::f16, DType::f32}) {
    const OnDevice to(out, {c.M, c.N}, stream);
    cuda::matmul_fp8(to, {a_there, of_a}, {b_there, of_b}, {}, stream);
    const double spread = std::sqrt(static_cast<double>(c.K));
    expect_close(to.to_host(), want, 2 * unit_roundoff(out) + 0x1p-16 * spread, "c", spread);
  }
}

TEST(CudaMatmulFp8, ProductsEqualThoseOfTheDecodedCodes) {
  Stream stream = cuda::make_stream();
  const MatmulCase& c = kFp8Case;
  for (DType a_format : {DType::f8e4m3, DType::f8e5m2}) {
    const Fp8Codes codes(a_format);
    const Buffer inverse(DType::f32, {2});
    assign(inverse, {1.0 / 16, 1.0 / 32});
    const OnDevice a_there(codes.a8, stream), b_there(codes.b8, stream), scales(inverse, stream);
    Doubles want = codes.product();
    for (double& v : want) v /= 16 * 32;
    for (DType out : {DType::bf16, DType::f16, DType::f32}) {
      const OnDevice to(out, {c.M, c.N}, stream);
      const Tensor a_inverse = scales.tensor().rows(0, 1), b_inverse = scales.tensor().rows(1, 2);
      cuda::matmul_fp8(to, {a_there, a_inverse}, {b_there, b_inverse}, {}, stream);
      const double spread = std::sqrt(static_cast<double>(c.K));
      expect_close(to.to_host(), want, 2 * unit_roundoff(out) + 0x1p-16 * spread, "c", spread);
    }
  }
}

// f32 results take a kernel of their own for the bias, because cuBLASLt would round it to bf16. The bias is
// rounded to the dtype, and the sum at most twice.
TEST(CudaMatmulFp8, AddsABiasAndABase) {
  Stream stream = cuda::make_stream();
  const MatmulCase& c = kFp8Case;
  const Fp8Codes codes;
  const Buffer inverse(DType::f32, {2});
  assign(inverse, {1.0 / 16, 1.0 / 32});
  const Buffer bias = random_tensor(DType::f32, {c.N}, 3);
  const OnDevice a_there(codes.a8, stream), b_there(codes.b8, stream), scales(inverse, stream),
      bias_there(bias, stream);
  const Tensor a_inverse = scales.tensor().rows(0, 1), b_inverse = scales.tensor().rows(1, 2);
  const Doubles products = codes.product(), added = to_doubles(bias);
  for (DType out : {DType::bf16, DType::f16, DType::f32})
    for (const bool has_base : {false, true}) {
      const Buffer base = random_tensor(out, {c.M, c.N}, 4);
      const OnDevice to(out, {c.M, c.N}, stream), rounded(out, {c.N}, stream), base_there(base, stream);
      Doubles want = products;
      const Doubles bases = to_doubles(base);
      for (size_t i = 0; i < want.size(); ++i)
        want[i] = want[i] / (16 * 32) + added[i % static_cast<size_t>(c.N)] + (has_base ? bases[i] : 0);
      const LinearTerms terms{
          .bias = bias_there, .rounded = rounded, .base = has_base ? base_there.tensor() : Tensor{}};
      cuda::matmul_fp8(to, {a_there, a_inverse}, {b_there, b_inverse}, {.terms = terms}, stream);
      const double spread = std::sqrt(static_cast<double>(c.K));
      expect_close(to.to_host(), want, 3 * unit_roundoff(out) + 0x1p-16 * spread, "c", spread);
    }
}

}  // namespace
}  // namespace ingot::test
