#include "ingot/ops/dropout.h"

#include <gtest/gtest.h>

#include "ingot/core/parallel.h"
#include "tests/reference/numeric.h"

namespace ingot::test {
namespace {

RandomKey key_of(uint64_t step) {
  return {.seed = 0x123456789abcdef0, .purpose = Purpose::kDropout, .stream = 3, .step = step};
}

// Computed directly from the definition, with one scalar random_word per element.
Doubles dropout_reference(const Doubles& x, double p, const RandomKey& key, uint64_t first_index) {
  Doubles y(x.size());
  for (size_t i = 0; i < x.size(); ++i)
    y[i] = random_word(key, first_index + i) < p * 0x1p32 ? 0.0 : x[i] / (1 - p);
  return y;
}

struct DropoutCase {
  DType dtype;
  int64_t elements;
  uint64_t first_index;
};

std::string dropout_case_name(const ::testing::TestParamInfo<DropoutCase>& info) {
  return fmt::format("{}_{}_from_{}", name(info.param.dtype), info.param.elements, info.param.first_index);
}

class Dropout : public ::testing::TestWithParam<DropoutCase> {
 protected:
  DropoutCase c = GetParam();
  Stream stream;
  Buffer x = random_tensor(c.dtype, {c.elements}, 1), y{c.dtype, {c.elements}};
  // The scale and the product are rounded to f32, and the result to the dtype.
  double tolerance = unit_roundoff(c.dtype) + 2 * unit_roundoff(DType::f32);
};

TEST_P(Dropout, MatchesTheScalarGenerator) {
  for (float p : {0.1f, 0.5f, 0.9f}) {
    dropout(y, x, p, key_of(7), c.first_index, stream);
    const Doubles want = dropout_reference(to_doubles(x), p, key_of(7), c.first_index);
    expect_close(y, want, tolerance, "y");
    const Doubles got = to_doubles(y);
    for (size_t i = 0; i < got.size(); ++i) ASSERT_EQ(got[i] == 0, want[i] == 0) << i;
  }
}

TEST_P(Dropout, IsTheSameInPlaceAndForAnyNumberOfThreads) {
  const int threads = num_threads();
  dropout(y, x, 0.3f, key_of(1), c.first_index, stream);
  for (int n : {1, 2, 3}) {
    set_num_threads(n);
    Buffer copy(c.dtype, {c.elements});
    assign(copy, to_doubles(x));
    dropout(copy, copy, 0.3f, key_of(1), c.first_index, stream);
    EXPECT_EQ(to_doubles(copy), to_doubles(y)) << n << " threads";
  }
  set_num_threads(threads);
}

// y is linear in x, so its central difference with any step is exact and equals dropout(dy).
TEST_P(Dropout, BackwardUsesTheSameMask) {
  Buffer dy = random_tensor(c.dtype, {c.elements}, 2), dx(c.dtype, {c.elements});
  dropout(dx, dy, 0.25f, key_of(5), c.first_index, stream);
  Doubles above = to_doubles(x), below = above;
  for (double& v : above) v += 0.5;
  for (double& v : below) v -= 0.5;
  above = dropout_reference(above, 0.25, key_of(5), c.first_index);
  below = dropout_reference(below, 0.25, key_of(5), c.first_index);
  Doubles want = to_doubles(dy);
  for (size_t i = 0; i < want.size(); ++i) want[i] *= above[i] - below[i];
  expect_close(dx, want, tolerance, "dx");
}

TEST_P(Dropout, ProbabilityZeroDropsNothing) {
  const Doubles before = to_doubles(x);
  dropout(y, x, 0, key_of(1), c.first_index, stream);
  EXPECT_EQ(to_doubles(y), before);
  dropout(x, x, 0, key_of(1), c.first_index, stream);
  EXPECT_EQ(to_doubles(x), before);
}

std::vector<DropoutCase> dropout_cases() {
  std::vector<DropoutCase> all;
  for (DType dtype : {DType::f32, DType::bf16, DType::f16})
    for (int64_t elements : {1, 31, 32, 33, 257, 40000})
      for (uint64_t first_index : {uint64_t{0}, uint64_t{5}, uint64_t{0x3fffffffe}})  // crosses block 2^32
        all.push_back({dtype, elements, first_index});
  return all;
}

INSTANTIATE_TEST_SUITE_P(Sizes, Dropout, ::testing::ValuesIn(dropout_cases()), dropout_case_name);

class DropoutMask : public ::testing::Test {
 protected:
  static constexpr int64_t kElements = 1 << 16;
  Stream stream;
  Buffer ones{DType::f32, {kElements}};
  DropoutMask() { assign(ones, Doubles(kElements, 1.0)); }
  Doubles mask(float p, const RandomKey& key) {
    Buffer y(DType::f32, {kElements});
    dropout(y, ones, p, key, 0, stream);
    return to_doubles(y);
  }
};

TEST_F(DropoutMask, DropsTheGivenFraction) {
  for (float p : {0.1f, 0.5f, 0.75f}) {
    double dropped = 0;
    for (double v : mask(p, key_of(1))) dropped += v == 0;
    const double deviation = std::sqrt(kElements * p * (1.0 - p));
    EXPECT_NEAR(dropped, kElements * p, 4 * deviation) << p;
  }
}

TEST_F(DropoutMask, DiffersBetweenStepsSitesAndSeeds) {
  RandomKey key = key_of(1);
  const Doubles first = mask(0.5f, key);
  EXPECT_EQ(mask(0.5f, key), first);
  EXPECT_NE(mask(0.5f, key_of(2)), first);
  key.stream = 4;
  EXPECT_NE(mask(0.5f, key), first);
  key = key_of(1);
  key.seed ^= uint64_t{1} << 40;
  EXPECT_NE(mask(0.5f, key), first);
}

TEST_F(DropoutMask, RefusesANumberThatIsNotAProbability) {
  for (float p : {-0.1f, 1.0f, std::nanf("")}) EXPECT_THROW(mask(p, key_of(1)), Error) << p;
  RandomKey key = key_of(1);
  key.purpose = Purpose::kInit;
  EXPECT_THROW(mask(0.1f, key), Error);
}

}  // namespace
}  // namespace ingot::test
