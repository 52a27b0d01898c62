#include "ingot/ops/matmul.h"

#include <gtest/gtest.h>

#include "ingot/core/parallel.h"
#include "ingot/ops/matmul/matmul_engines.h"
#include "tests/reference/numeric.h"

namespace ingot::test {
namespace {

struct MatmulCase {
  MatmulForm form;
  DType in, out;
  bool accumulate;
  int64_t M, N, K;
};

std::string matmul_case_name(const ::testing::TestParamInfo<MatmulCase>& info) {
  const MatmulCase& c = info.param;
  const char* forms[] = {"NT", "NN", "TN"};
  return fmt::format("{}_{}_{}{}_{}x{}x{}", forms[static_cast<int>(c.form)], name(c.in), name(c.out),
                     c.accumulate ? "_accumulate" : "", c.M, c.N, c.K);
}

// Returns c = op(a) · op(b) in double.
Doubles reference(const MatmulCase& c, const Doubles& a, const Doubles& b) {
  Doubles out(static_cast<size_t>(c.M * c.N));
  for (int64_t m = 0; m < c.M; ++m)
    for (int64_t n = 0; n < c.N; ++n) {
      double total = 0;
      for (int64_t k = 0; k < c.K; ++k) {
        const double x = a[static_cast<size_t>(c.form == MatmulForm::kTN ? k * c.M + m : m * c.K + k)];
        const double y = b[static_cast<size_t>(c.form == MatmulForm::kNT ? n * c.K + k : k * c.N + n)];
        total += x * y;
      }
      out[static_cast<size_t>(m * c.N + n)] = total;
    }
  return out;
}

class Matmul : public ::testing::TestWithParam<MatmulCase> {
 protected:
  MatmulCase c = GetParam();
  Stream stream;
  Shape a_shape = c.form == MatmulForm::kTN ? Shape{c.K, c.M} : Shape{c.M, c.K};
  Shape b_shape = c.form == MatmulForm::kNT ? Shape{c.N, c.K} : Shape{c.K, c.N};
  Buffer a = random_tensor(c.in, a_shape, 1), b = random_tensor(c.in, b_shape, 2);
  Buffer out = random_tensor(c.out, {c.M, c.N}, 3);

  Doubles want() const {
    Doubles values = reference(c, to_doubles(a), to_doubles(b));
    const Doubles before = to_doubles(out);
    for (size_t i = 0; c.accumulate && i < values.size(); ++i) values[i] += before[i];
    return values;
  }
  // The error is that of K products of magnitude 1 summed in f32, and one rounding to the result's dtype.
  double tolerance() const {
    return 2 * unit_roundoff(c.out) + 8 * unit_roundoff(DType::f32) * std::sqrt(static_cast<double>(c.K));
  }
  double magnitude() const { return std::sqrt(static_cast<double>(c.K + 1)); }
};

TEST_P(Matmul, MatchesReference) {
  const Doubles expected = want();
  matmul(out, a, b, c.form, c.accumulate, stream);
  expect_close(out, expected, tolerance(), "c", magnitude());
}

TEST_P(Matmul, PortableEngineMatchesReference) {
  const Doubles expected = want();
  const Tensor &ta = a, &tb = b, &tc = out;
  portable::matmul({c.form, c.accumulate, c.in, c.out, c.M, c.N, c.K, ta.data, tb.data, tc.data,
                    ta.strides[0], tb.strides[0], tc.strides[0]},
                   stream);
  expect_close(out, expected, tolerance(), "c", magnitude());
}

TEST_P(Matmul, IsBitwiseReproducible) {
  const Doubles before = to_doubles(out);
  matmul(out, a, b, c.form, c.accumulate, stream);
  const Doubles first = to_doubles(out);
  assign(out, before);
  matmul(out, a, b, c.form, c.accumulate, stream);
  EXPECT_EQ(to_doubles(out), first);
}

std::vector<MatmulCase> matmul_cases() {
  std::vector<MatmulCase> all;
  const int64_t sizes[][3] = {{1, 1, 1},     {3, 31, 33},    {33, 17, 257}, {65, 129, 64},
                              {4, 300, 100}, {130, 600, 70}, {70, 40, 600}, {1, 500, 300}};
  for (MatmulForm form : {MatmulForm::kNT, MatmulForm::kNN, MatmulForm::kTN})
    for (const auto& s : sizes)
      for (DType in : {DType::f32, DType::bf16, DType::f16}) {
        all.push_back({form, in, DType::f32, false, s[0], s[1], s[2]});
        all.push_back({form, in, DType::f32, true, s[0], s[1], s[2]});
        if (in == DType::f32) continue;
        for (DType out : {DType::bf16, DType::f16}) all.push_back({form, in, out, false, s[0], s[1], s[2]});
      }
  return all;
}

INSTANTIATE_TEST_SUITE_P(Shapes, Matmul, ::testing::ValuesIn(matmul_cases()), matmul_case_name);

// A matrix of one column or row is a strided vector where it is part of a wider one. oneDNN 3.7 took the
// result of one column for contiguous numbers.
TEST(MatmulOfStridedVectors, MatchesReference) {
  constexpr int64_t kSize = 40, kSpare = 7;
  for (const MatmulForm form : {MatmulForm::kNT, MatmulForm::kNN, MatmulForm::kTN})
    for (const DType in : {DType::f32, DType::bf16})
      for (const DType out : {DType::f32, in})
        for (int one = 0; one < 3; ++one) {
          const MatmulCase c{
              form, in, out, false, one == 0 ? 1 : kSize, one == 1 ? 1 : kSize, one == 2 ? 1 : kSize};
          const auto wide = [](DType dtype, int64_t rows, int64_t columns, uint64_t seed) {
            return random_tensor(dtype, {rows, columns + kSpare}, seed);
          };
          const int64_t a_columns = form == MatmulForm::kTN ? c.M : c.K,
                        b_columns = form == MatmulForm::kNT ? c.K : c.N;
          const Buffer a = wide(in, form == MatmulForm::kTN ? c.K : c.M, a_columns, 1);
          const Buffer b = wide(in, form == MatmulForm::kNT ? c.N : c.K, b_columns, 2);
          const Buffer y = wide(out, c.M, c.N, 3);
          const auto part = [](const Buffer& buffer, int64_t columns) {
            const Tensor all = buffer;
            const Doubles values = to_doubles(buffer);
            Doubles found;
            for (int64_t row = 0; row < all.dim(0); ++row)
              for (int64_t i = 0; i < columns; ++i)
                found.push_back(values[static_cast<size_t>(row * all.dim(1) + i)]);
            return found;
          };
          Doubles want = to_doubles(y);
          const Doubles product = reference(c, part(a, a_columns), part(b, b_columns));
          for (int64_t m = 0; m < c.M; ++m)
            for (int64_t n = 0; n < c.N; ++n)
              want[static_cast<size_t>(m * (c.N + kSpare) + n)] = product[static_cast<size_t>(m * c.N + n)];
          Stream stream;
          matmul(Tensor(y).columns(0, c.N), Tensor(a).columns(0, a_columns), Tensor(b).columns(0, b_columns),
                 form, false, stream);
          SCOPED_TRACE(fmt::format("form {}, {} to {}, {}x{}x{}", static_cast<int>(form), name(in), name(out),
                                   c.M, c.N, c.K));
          expect_close(y, want, 2 * unit_roundoff(out) + 8 * unit_roundoff(DType::f32) * std::sqrt(kSize),
                       "c", std::sqrt(kSize + 1.0));
        }
}

// Threads begin at other rows of b, so other rows are computed together.
TEST(MatmulOfFewRows, IsBitwiseEqualForAnyNumberOfThreads) {
  const int threads = num_threads();
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    const Buffer a = random_tensor(dtype, {3, 333}, 1), b = random_tensor(dtype, {515, 333}, 2);
    Buffer out = random_tensor(DType::f32, {3, 515}, 3);
    Stream stream;
    Doubles alone;
    for (const int count : {1, 2, 3, 5}) {
      set_num_threads(count);
      matmul(out, a, b, MatmulForm::kNT, false, stream);
      if (count == 1) alone = to_doubles(out);
      EXPECT_EQ(to_doubles(out), alone) << name(dtype) << ", " << count << " threads";
    }
  }
  set_num_threads(threads);
}

#ifdef __AMX_BF16__
class AmxMatmul : public Matmul {};

TEST_P(AmxMatmul, MatchesReference) {
  if (!amx::is_available()) GTEST_SKIP() << "this kernel grants no AMX";
  const Tensor &ta = a, &tb = b, &tc = out;
  for (const float alpha : {1.0f, 0.75f}) {
    SCOPED_TRACE(alpha);
    const Doubles before = to_doubles(out);
    Doubles expected = reference(c, to_doubles(a), to_doubles(b));
    for (size_t i = 0; i < expected.size(); ++i)
      expected[i] = alpha * expected[i] + (c.accumulate ? before[i] : 0);
    amx::matmul({c.form, c.accumulate, c.in, c.out, c.M, c.N, c.K, ta.data, tb.data, tc.data, ta.strides[0],
                 tb.strides[0], tc.strides[0], alpha},
                stream);
    expect_close(out, expected, tolerance(), "c", magnitude());
  }
}

// One thread computes each sum, in the order of k.
TEST_P(AmxMatmul, IsBitwiseEqualForAnyNumberOfThreads) {
  if (!amx::is_available()) GTEST_SKIP() << "this kernel grants no AMX";
  const Tensor &ta = a, &tb = b, &tc = out;
  const Doubles before = to_doubles(out);
  const MatmulProblem p{c.form,  c.accumulate, c.in,    c.out,         c.M,           c.N,          c.K,
                        ta.data, tb.data,      tc.data, ta.strides[0], tb.strides[0], tc.strides[0]};
  const int threads = num_threads();
  set_num_threads(1);
  amx::matmul(p, stream);
  const Doubles alone = to_doubles(out);
  for (const int many : {2, 3, 4}) {
    set_num_threads(many);
    assign(out, before);
    amx::matmul(p, stream);
    EXPECT_EQ(to_doubles(out), alone) << many << " threads";
  }
  set_num_threads(threads);
}
std::vector<MatmulCase> amx_cases() {
  std::vector<MatmulCase> all;
  for (const MatmulCase& c : matmul_cases())
    if (c.in == DType::bf16 && c.out != DType::f16) all.push_back(c);
  // The sizes exceed the engine's blocks of columns, of rows of sums and of k, each with a remainder.
  const int64_t sizes[][3] = {{40, 1070, 390}, {2090, 40, 420}, {300, 70, 800}, {20, 33, 2050}};
  for (MatmulForm form : {MatmulForm::kNT, MatmulForm::kNN, MatmulForm::kTN})
    for (const auto& s : sizes) {
      all.push_back({form, DType::bf16, DType::f32, true, s[0], s[1], s[2]});
      all.push_back({form, DType::bf16, DType::bf16, false, s[0], s[1], s[2]});
    }
  return all;
}

INSTANTIATE_TEST_SUITE_P(Shapes, AmxMatmul, ::testing::ValuesIn(amx_cases()), matmul_case_name);
#endif

TEST(MatmulViews, MayBeColumnsOfAWiderMatrix) {
  Stream stream;
  const int64_t M = 37, N = 24, K = 40, wide = 100;
  for (DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    Buffer a_wide = random_tensor(dtype, {M, wide}, 1), b = random_tensor(dtype, {N, K}, 2);
    Buffer packed(dtype, {M, K}), want(dtype, {M, N}), got_wide = zeros(dtype, {M, wide});
    const Tensor a = a_wide.tensor().columns(30, 30 + K), got = got_wide.tensor().columns(50, 50 + N);
    const Doubles all = to_doubles(a_wide);
    Doubles copied;
    for (size_t m = 0; m < M; ++m)
      for (size_t k = 0; k < K; ++k) copied.push_back(all[m * wide + 30 + k]);
    assign(packed, copied);
    matmul(want, packed, b, MatmulForm::kNT, false, stream);
    matmul(got, a, b, MatmulForm::kNT, false, stream);
    const Doubles result = to_doubles(got_wide), expected = to_doubles(want);
    for (size_t m = 0; m < M; ++m)
      for (size_t n = 0; n < wide; ++n) {
        const bool inside = n >= 50 && n < 50 + N;
        const double bound = 1e-5 + 2 * unit_roundoff(dtype) * 10;
        ASSERT_NEAR(result[m * wide + n], inside ? expected[m * N + n - 50] : 0.0, bound) << m << "," << n;
      }
  }
}

TEST(MatmulErrors, NameShapesAndDtypes) {
  Stream stream;
  Buffer a = zeros(DType::f32, {2, 3}), b = zeros(DType::f32, {4, 5}), c = zeros(DType::f32, {2, 4});
  EXPECT_THROW(matmul(c, a, b, MatmulForm::kNT, false, stream), Error);
  Buffer b16 = zeros(DType::bf16, {4, 3});
  EXPECT_THROW(matmul(c, a, b16, MatmulForm::kNT, false, stream), Error);
}

}  // namespace
}  // namespace ingot::test
