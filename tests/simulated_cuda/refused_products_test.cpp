// 8-bit products, and products that add to another tensor, have the same results with a cuBLASLt that refuses
// them: the stand-in behaves like one that lacks the kinds named in INGOT_SIMULATED_CUBLASLT_REFUSES.
#include <gmock/gmock.h>

#include <cstdlib>

#include "ingot/core/float8.h"
#include "ingot/ops/cast_fp8.h"
#include "ingot/ops/cuda/fastest.h"
#include "ingot/ops/cuda_fp8.h"
#include "ingot/ops/kernel_report.h"
#include "ingot/ops/linear_fused.h"
#include "tests/cuda/on_device.h"
#include "tests/reference/error_of.h"

namespace ingot::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

struct Library {
  const char* name;
  const char* refuses;
  std::vector<const char*> replaced;  // the ends of the kinds that the report names
};
void PrintTo(const Library& library, std::ostream* out) { *out << library.name; }

const Library kLibraries[] = {
    {"all", "", {}},
    {"no_rowwise_beta", "rowwise_beta", {"-> f32, NT, scales by row, beta 1"}},
    {"no_rowwise_addend",
     "rowwise_addend",
     {"-> bf16, NT, scales by row, C != D", "-> f32, NT, scales by row, C != D"}},
    {"no_addend", "addend", {"f8e4m3 -> bf16, NT, fast sums, C != D", "NT, fast sums, BIAS, C != D"}},
    {"no_bias", "fp8_bias", {"-> bf16, NT, fast sums, BIAS", "-> bf16, NT, scales by row, fast sums, BIAS"}},
    {"no_fast_rows", "rowwise_fast", {"-> f32, NT, scales by row, fast sums"}},
    {"none", "rowwise_beta addend fp8_bias rowwise_fast", {"beta 1", "C != D", "BIAS", "fast sums"}}};

class RefusedProducts : public ::testing::TestWithParam<Library> {
 protected:
  static constexpr int64_t kM = 40, kN = 64, kK = 96;

  RefusedProducts() { setenv("INGOT_SIMULATED_CUBLASLT_REFUSES", GetParam().refuses, 1); }
  ~RefusedProducts() override { unsetenv("INGOT_SIMULATED_CUBLASLT_REFUSES"); }

  static Buffer numbers(const Doubles& values) {
    Buffer buffer(DType::f32, {static_cast<int64_t>(values.size())});
    assign(buffer, values);
    return buffer;
  }
};

TEST_P(RefusedProducts, HaveTheSameResults) {
  Stream stream = cuda::make_stream(), cpu;
  Buffer a8(DType::f8e4m3, {kM, kK}), b8(DType::f8e4m3, {kN, kK}), a(DType::f32, {kM, kK}),
      b(DType::f32, {kN, kK});
  Fp8Stats stats;
  cast_to_fp8(a8, random_tensor(DType::f32, {kM, kK}, 1), 16, stats, cpu);
  cast_to_fp8(b8, random_tensor(DType::f32, {kN, kK}, 2), 32, stats, cpu);
  cast_from_fp8(a, a8, cpu);
  cast_from_fp8(b, b8, cpu);
  const Doubles as = to_doubles(a), bs = to_doubles(b);
  const Buffer bias = random_tensor(DType::f32, {kN}, 3);
  const Doubles biases = to_doubles(bias);
  const OnDevice a_there(a8, stream), b_there(b8, stream), bias_there(bias, stream);
  const OnDevice sums(DType::f32, {20, kN}, stream);  // for 16 rows at a time
  const auto spread = std::sqrt(static_cast<double>(kK));
  for (const bool is_by_row : {false, true}) {
    Doubles a_scales, b_scales;
    for (int64_t m = 0; m < (is_by_row ? kM : 1); ++m) a_scales.push_back(std::ldexp(1.0, -4 - int(m % 5)));
    for (int64_t n = 0; n < (is_by_row ? kN : 1); ++n) b_scales.push_back(std::ldexp(1.0, -5 - int(n % 3)));
    const OnDevice of_a(numbers(a_scales), stream), of_b(numbers(b_scales), stream);
    for (const DType out : {DType::bf16, DType::f16, DType::f32})
      for (const int terms : {0, 1, 2, 3, 4}) {
        const bool accumulates = terms == 4, has_bias = terms & 1, has_base = terms & 2;
        if (accumulates && out != DType::f32) continue;
        const Buffer old = random_tensor(out, {kM, kN}, 4), base = random_tensor(out, {kM, kN}, 5);
        const OnDevice to(old, stream), base_there(base, stream), rounded(out, {kN}, stream);
        cuda::matmul_fp8(to, {a_there, of_a}, {b_there, of_b},
                         {.accumulate = accumulates,
                          .is_fast = !accumulates,
                          .alpha = 0.5f,
                          .terms = {.bias = has_bias ? bias_there.tensor() : Tensor{},
                                    .rounded = rounded,
                                    .base = has_base ? base_there.tensor() : Tensor{}},
                          .sums = sums},
                         stream);
        Doubles want(static_cast<size_t>(kM * kN));
        const Doubles olds = to_doubles(old), bases = to_doubles(base);
        for (size_t i = 0; i < want.size(); ++i) {
          const size_t m = i / size_t{kN}, n = i % size_t{kN};
          for (size_t k = 0; k < size_t{kK}; ++k) want[i] += as[m * size_t{kK} + k] * bs[n * size_t{kK} + k];
          want[i] *= 0.5 * a_scales[is_by_row ? m : 0] * b_scales[is_by_row ? n : 0];
          want[i] += (accumulates ? olds[i] : 0) + (has_bias ? biases[n] : 0) + (has_base ? bases[i] : 0);
        }
        // The bias is rounded to the dtype, and the result once for each of its terms. Each is of the size of
        // the sum.
        expect_close(to.to_host(), want, 4 * unit_roundoff(out) + 0x1p-16 * spread,
                     fmt::format("{}, by row {}, terms {}", name(out), is_by_row, terms), spread);
      }
  }
  const std::string refused = kernel_report(stream).refused();
  EXPECT_EQ(refused.empty(), GetParam().replaced.empty()) << refused;
  for (const char* kind : GetParam().replaced) EXPECT_THAT(refused, HasSubstr(kind));
}

// The products of 16 bits have an addend too: a residual that the product adds as it writes.
TEST_P(RefusedProducts, OfSixteenBitsHaveTheSameResults) {
  Stream stream = cuda::make_stream();
  const Buffer x = random_tensor(DType::bf16, {kM, kK}, 1), w = random_tensor(DType::bf16, {kN, kK}, 2),
               base = random_tensor(DType::bf16, {kM, kN}, 3);
  const OnDevice x_there(x, stream), w_there(w, stream), base_there(base, stream),
      y(DType::bf16, {kM, kN}, stream);
  linear_sum(y, x_there, w_there, {.base = base_there}, stream);
  Doubles want = to_doubles(base);
  const Doubles xs = to_doubles(x), ws = to_doubles(w);
  for (size_t i = 0; i < want.size(); ++i)
    for (size_t k = 0; k < size_t{kK}; ++k)
      want[i] += xs[i / size_t{kN} * size_t{kK} + k] * ws[i % size_t{kN} * size_t{kK} + k];
  const auto spread = std::sqrt(static_cast<double>(kK));
  expect_close(y.to_host(), want, 3 * unit_roundoff(DType::bf16), "y", spread);
}

INSTANTIATE_TEST_SUITE_P(Libraries, RefusedProducts, ::testing::ValuesIn(kLibraries),
                         [](const auto& info) { return std::string(info.param.name); });

// Without scratch there is no way to add a refused product; the error says what was asked.
TEST(RefusedProductsWithoutScratch, AreNamed) {
  setenv("INGOT_SIMULATED_CUBLASLT_REFUSES", "rowwise_beta", 1);
  Stream stream = cuda::make_stream();
  const OnDevice codes(DType::f8e4m3, {16, 16}, stream), scales(DType::f32, {16}, stream),
      c(DType::f32, {16, 16}, stream);
  EXPECT_THAT(
      error_of([&] {
        cuda::matmul_fp8(c, {codes, scales}, {codes, scales}, {.accumulate = true}, stream);
      }),
      AllOf(HasSubstr("f8e4m3 x f8e4m3 -> f32, NT, scales by row, beta 1"), HasSubstr("precision.fp8")));
  unsetenv("INGOT_SIMULATED_CUBLASLT_REFUSES");
}

// As where a plan of cuDNN cannot be executed.
TEST(Fastest, DropsCandidatesThatThrow) {
  Stream stream = cuda::make_stream();
  std::string error;
  int runs = 0;
  const auto submit = [&](size_t i) {
    if (i != 1) fail(ErrorKind::kInternal, "plan {} fails", i);
    ++runs;
  };
  EXPECT_EQ(cuda::fastest(3, cuda::without_errors(submit, error), stream), size_t{1});
  EXPECT_EQ(error, "plan 2 fails");
  EXPECT_EQ(runs, 1);
  EXPECT_EQ(cuda::fastest(1, cuda::without_errors(submit, error), stream), std::nullopt);
}

}  // namespace
}  // namespace ingot::test
