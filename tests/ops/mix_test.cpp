#include "ingot/ops/mix.h"

#include <gtest/gtest.h>

#include "ingot/core/parallel.h"
#include "ingot/ops/row_sum.h"
#include "tests/reference/error_of.h"
#include "tests/reference/numeric.h"

namespace ingot::test {
namespace {

struct MixCase {
  DType dtype;
  int64_t N, C;
};

class Mix : public ::testing::TestWithParam<MixCase> {
 protected:
  MixCase c = GetParam();
  Stream stream;
  Shape shape{c.N, c.C};
  Buffer x = random_tensor(c.dtype, shape, 1), z = random_tensor(c.dtype, shape, 2),
         dy = random_tensor(c.dtype, shape, 3);
  Buffer a = random_tensor(DType::f32, {1}, 4), b = random_tensor(DType::f32, {1}, 5);
  Buffer y{c.dtype, shape}, dx{c.dtype, shape}, dz{c.dtype, shape};
  Buffer scratch{DType::f32, {2, num_threads()}};
  double of_a = to_doubles(a)[0], of_b = to_doubles(b)[0];
  double rounding = 4 * unit_roundoff(c.dtype);

  static Doubles weighted(const Doubles& x, double a, const Doubles& z, double b) {
    Doubles sum(x.size());
    for (size_t i = 0; i < x.size(); ++i) sum[i] = a * x[i] + (z.empty() ? 0 : b * z[i]);
    return sum;
  }
  double sum_tolerance() const { return 8 * unit_roundoff(DType::f32) * static_cast<double>(c.N * c.C); }
};

TEST_P(Mix, ForwardMatchesTheFormula) {
  mix_forward(y, {.x = x, .z = z, .a = a, .b = b}, stream);
  expect_close(y, weighted(to_doubles(x), of_a, to_doubles(z), of_b), rounding, "both");
  mix_forward(y, {.x = x, .z = z, .a = {}, .b = b}, stream);
  expect_close(y, weighted(to_doubles(x), 1, to_doubles(z), of_b), rounding, "without a");
  mix_forward(y, {.x = x, .z = {}, .a = a, .b = {}}, stream);
  expect_close(y, weighted(to_doubles(x), of_a, {}, 0), rounding, "without z");
}

TEST_P(Mix, BackwardMatchesTheFormulaAndAddsToTheFactors) {
  Buffer da(DType::f32, {1}), db(DType::f32, {1});
  assign(da, {2.0});
  assign(db, {-3.0});
  mix_backward({.x = dx, .z = dz, .a = da, .b = db}, dy, {.x = x, .z = z, .a = a, .b = b}, scratch, stream);
  expect_close(dx, weighted(to_doubles(dy), of_a, {}, 0), rounding, "dx");
  expect_close(dz, weighted(to_doubles(dy), of_b, {}, 0), rounding, "dz");
  EXPECT_NEAR(to_doubles(da)[0], 2 + dot(to_doubles(dy), to_doubles(x)), sum_tolerance());
  EXPECT_NEAR(to_doubles(db)[0], -3 + dot(to_doubles(dy), to_doubles(z)), sum_tolerance());
}

// Either gradient may lie over dy, and without learned factors the terms are not read.
TEST_P(Mix, BackwardWritesOverItsGradient) {
  const Doubles d = to_doubles(dy);
  mix_backward({.x = dy, .z = dz, .a = {}, .b = {}}, dy, {.x = {}, .z = {}, .a = a, .b = b}, scratch, stream);
  expect_close(dy, weighted(d, of_a, {}, 0), rounding, "dx over dy");
  expect_close(dz, weighted(d, of_b, {}, 0), rounding, "dz");
  const Doubles again = to_doubles(dy);
  mix_backward({.x = dx, .z = dy, .a = {}, .b = {}}, dy, {.x = {}, .z = {}, .a = a, .b = b}, scratch, stream);
  expect_close(dy, weighted(again, of_b, {}, 0), rounding, "dz over dy");
  expect_close(dx, weighted(again, of_a, {}, 0), rounding, "dx");
}

// The values lie in the last columns of a buffer of queries, keys and values.
TEST_P(Mix, RowsMayBeStrided) {
  Buffer wide = random_tensor(c.dtype, {c.N, 3 * c.C}, 6);
  const Doubles before = to_doubles(wide);
  const Tensor v = wide.tensor().columns(2 * c.C, 3 * c.C);
  mix_forward(v, {.x = v, .z = z, .a = a, .b = b}, stream);
  Doubles want = before;
  const Doubles second = to_doubles(z);
  for (int64_t n = 0; n < c.N; ++n)
    for (int64_t i = 0; i < c.C; ++i) {
      const auto at = static_cast<size_t>(n * 3 * c.C + 2 * c.C + i);
      want[at] = of_a * before[at] + of_b * second[static_cast<size_t>(n * c.C + i)];
    }
  expect_close(wide, want, rounding, "the buffer");
}

INSTANTIATE_TEST_SUITE_P(Shapes, Mix,
                         ::testing::Values(MixCase{DType::f32, 1, 1}, MixCase{DType::f32, 7, 33},
                                           MixCase{DType::f32, 64, 768}, MixCase{DType::bf16, 5, 40},
                                           MixCase{DType::bf16, 300, 129}, MixCase{DType::f16, 9, 64}),
                         [](const auto& info) {
                           return fmt::format("{}_{}x{}", name(info.param.dtype), info.param.N, info.param.C);
                         });

TEST(MixChecks, NameTheOperandThatIsWrong) {
  Stream stream;
  Buffer x(DType::f32, {4, 8}), z(DType::f32, {4, 7}), two(DType::f32, {2});
  const auto error = [&](const MixTerms& terms) { return error_of([&] { mix_forward(x, terms, stream); }); };
  EXPECT_NE(error({.x = x, .z = z, .a = {}, .b = {}}).find("mix_forward: z"), std::string::npos);
  EXPECT_NE(error({.x = x, .z = x, .a = two, .b = {}}).find("mix_forward: a"), std::string::npos);
}

}  // namespace
}  // namespace ingot::test
