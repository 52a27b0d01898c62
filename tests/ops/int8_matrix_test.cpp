#include "ingot/ops/int8_matrix.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ingot/core/parallel.h"
#include "tests/reference/numeric.h"

namespace ingot::test {
namespace {

using ::testing::HasSubstr;

// A matrix (N, K) with random weights, and what its codes stand for in double.
struct Quantized {
  Quantized(int64_t N, int64_t K, double scale = 0.05)
      : w(random_tensor(DType::f32, {N, K}, 1, scale)),
        memory("int8", static_cast<size_t>(2 * N * K + N * 64 + 256)),
        codes(alloc_int8(memory, N, K)) {}
  void quantize() { int8_quantize(codes, w); }

  double scale(int64_t n, int64_t k) const {
    return element(codes.scales, static_cast<size_t>(n * codes.scales.dim(1) + k / kInt8Group));
  }
  double code(int64_t n, int64_t k) const {
    return static_cast<int8_t>(codes.codes.as<uint8_t>()[n * codes.codes.dim(1) + k]);
  }
  Doubles values() const {
    Doubles all;
    for (int64_t n = 0; n < codes.codes.dim(0); ++n)
      for (int64_t k = 0; k < codes.codes.dim(1); ++k) all.push_back(scale(n, k) * code(n, k));
    return all;
  }

  Buffer w;
  Arena memory;
  Int8Matrix codes;
};

// The bound is half a step plus two roundings, because one division and one multiplication are in f32.
TEST(Int8Matrix, ValuesDifferByHalfAStepAtMost) {
  for (const int64_t K : {1, 63, 64, 65, 200}) {
    for (const double size : {1e-12, 0.05, 3e4}) {
      Quantized q(7, K, size);
      for (int64_t k = 0; k < K; ++k)
        set_element(q.w, static_cast<size_t>(2 * K + k), 0.0);  // a row of zeros
      q.quantize();
      for (int64_t n = 0; n < 7; ++n)
        for (int64_t k = 0; k < K; ++k) {
          const double want = element(q.w, static_cast<size_t>(n * K + k)), step = q.scale(n, k);
          EXPECT_LE(std::abs(step * q.code(n, k) - want), step * 0.5 + 2 * 0x1p-24 * std::abs(want))
              << n << "," << k;
          EXPECT_LE(std::abs(q.code(n, k)), 127);
        }
      EXPECT_EQ(q.scale(2, 0), 0);
    }
  }
}

// The largest weight of a group takes every place within a binade, so that its scale is rounded up and down.
TEST(Int8Matrix, TheLargestWeightOfAGroupFits) {
  Quantized q(512, 64);
  for (int64_t n = 0; n < 512; ++n)
    for (int64_t k = 0; k < 64; ++k)
      set_element(q.w, static_cast<size_t>(n * 64 + k),
                  (k % 2 == 0 ? 1 : -1) * (1 + static_cast<double>(n) / 512));
  q.quantize();
  for (int64_t n = 0; n < 512; ++n) {
    EXPECT_GE(q.code(n, 0), 126) << n;
    EXPECT_EQ(q.code(n, 1), -q.code(n, 0)) << n;
    EXPECT_LE(std::abs(q.scale(n, 0) * q.code(n, 0) - (1 + static_cast<double>(n) / 512)),
              q.scale(n, 0) / 2 * 1.001);
  }
}

TEST(Int8Matrix, DequantizesToTheRoundedValues) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    Quantized q(33, 100);
    q.quantize();
    Buffer got(dtype, {33, 100});
    Stream stream;
    int8_dequantize(got, q.codes, stream);
    expect_close(got, q.values(), unit_roundoff(dtype), "w", 0x1p-14);
  }
}

struct Int8Case {
  DType in, out;
  int64_t M, N, K;
};
std::string int8_case_name(const ::testing::TestParamInfo<Int8Case>& info) {
  const Int8Case& c = info.param;
  return fmt::format("{}_{}_{}x{}x{}", name(c.in), name(c.out), c.M, c.N, c.K);
}

class Int8Product : public ::testing::TestWithParam<Int8Case> {
 protected:
  Int8Product() { q.quantize(); }
  void multiply(const Tensor& y, const Tensor& x) { int8_matmul(y, x, q.codes, room, stream); }

  Int8Case c = GetParam();
  Quantized q{c.N, c.K, 1.0};
  Buffer x = random_tensor(c.in, {c.M, c.K}, 2), y = random_tensor(c.out, {c.M, c.N}, 3);
  Buffer memory{DType::u8, {int8_room_bytes(c.K, c.in)}};
  Tensor room = memory;
  Stream stream;
};

TEST_P(Int8Product, MatchesReference) {
  const Doubles w = q.values(), from = to_doubles(x);
  Doubles want;
  for (int64_t m = 0; m < c.M; ++m)
    for (int64_t n = 0; n < c.N; ++n) {
      double total = 0;
      for (int64_t k = 0; k < c.K; ++k)
        total += from[static_cast<size_t>(m * c.K + k)] * w[static_cast<size_t>(n * c.K + k)];
      want.push_back(total);
    }
  multiply(y, x);
  // As Matmul's, and for more than eight rows the weights are rounded to x's dtype; those roundings are
  // independent.
  const double of_weights = c.M > kInt8StreamedRows && c.in != DType::f32 ? 4 * unit_roundoff(c.in) : 0;
  const double tolerance = 2 * unit_roundoff(c.out) + of_weights +
                           8 * unit_roundoff(DType::f32) * std::sqrt(static_cast<double>(c.K));
  expect_close(y, want, tolerance, "y", std::sqrt(static_cast<double>(c.K + 1)));
}

std::vector<Int8Case> int8_cases() {
  std::vector<Int8Case> all;
  const int64_t sizes[][3] = {{1, 1, 1},   {1, 300, 64}, {2, 130, 200}, {3, 65, 127},  {4, 40, 40},
                              {7, 33, 65}, {9, 70, 65},  {17, 600, 96}, {40, 257, 130}};
  for (const auto& s : sizes)
    for (const DType in : {DType::f32, DType::bf16, DType::f16}) {
      all.push_back({in, DType::f32, s[0], s[1], s[2]});
      if (in != DType::f32) all.push_back({in, in, s[0], s[1], s[2]});
    }
  return all;
}
INSTANTIATE_TEST_SUITE_P(Shapes, Int8Product, ::testing::ValuesIn(int8_cases()), int8_case_name);

// Each of up to eight rows has the sums that it has alone, on any number of threads.
TEST(Int8Matrix, ProductsOfFewRowsDoNotDependOnOtherRows) {
  const int threads = num_threads();
  Quantized q(515, 333);
  q.quantize();
  const Buffer memory(DType::u8, {int8_room_bytes(333, DType::f32)});
  Stream stream;
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
    for (int64_t M = 1; M <= kInt8StreamedRows; ++M) {
      const Buffer x = random_tensor(dtype, {M, 333}, 2);
      Buffer together(DType::f32, {M, 515}), alone(DType::f32, {M, 515});
      set_num_threads(2);
      int8_matmul(together, x, q.codes, memory, stream);
      for (const int count : {1, 3}) {
        set_num_threads(count);
        for (int64_t m = 0; m < M; ++m)
          int8_matmul(alone.tensor().rows(m, m + 1), x.tensor().rows(m, m + 1), q.codes, memory, stream);
        EXPECT_EQ(to_doubles(alone), to_doubles(together)) << M << " rows, " << count << " threads";
      }
    }
  set_num_threads(threads);
}

TEST(Int8Matrix, EmbeddingTakesRowsAndAddsPositions) {
  const std::vector<int32_t> ids{4, 0, 4, 9};
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    Quantized q(10, 70);
    q.quantize();
    const Buffer positions = random_tensor(dtype, {4, 70}, 5);
    const Tensor tokens(const_cast<int32_t*>(ids.data()), DType::i32, {4});
    Buffer out(dtype, {4, 70});
    Stream stream;
    const Doubles values = q.values(), added = to_doubles(positions);
    for (const bool has_positions : {false, true}) {
      int8_embedding(out, tokens, q.codes, has_positions ? positions.tensor() : Tensor{}, stream);
      Doubles want;
      for (size_t n = 0; n < 4; ++n)
        for (size_t c = 0; c < 70; ++c)
          want.push_back(values[static_cast<size_t>(ids[n]) * 70 + c] +
                         (has_positions ? added[n * 70 + c] : 0));
      expect_close(out, want, unit_roundoff(dtype) + 2 * unit_roundoff(DType::f32), "out", 0x1p-2);
    }
  }
}

TEST(Int8Matrix, ATokenOutsideTheTableIsRefused) {
  Quantized q(10, 8);
  q.quantize();
  std::vector<int32_t> ids{3, 10};
  Buffer out(DType::f32, {2, 8});
  Stream stream;
  EXPECT_THAT([&] { int8_embedding(out, Tensor(ids.data(), DType::i32, {2}), q.codes, {}, stream); },
              ::testing::ThrowsMessage<Error>(HasSubstr("token 10 at index 1")));
}

}  // namespace
}  // namespace ingot::test
