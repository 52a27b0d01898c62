// Tests the figures of `ingot bench precision`: the error of each recipe's gradients against double
// precision matches the rounding of its format.
#include "ingot/profile/bench_precision.h"

#include <gtest/gtest.h>

#include <map>

#include "tests/run/training_fixture.h"

namespace ingot {
namespace {

class BenchPrecision : public TrainingTest {};
TEST_F(BenchPrecision, ErrorsMatchTheFormats) {
  std::map<std::string, PrecisionBenchRow> rows;
  int reported = 0;
  for (const PrecisionBenchRow& row : bench_precision({.data = {text.string()}, .steps = 2, .seeds = 1},
                                                      [&](const PrecisionBenchRow&) { ++reported; }))
    rows[row.recipe] = row;
  EXPECT_EQ(reported, static_cast<int>(rows.size()));
  const auto expect_error = [&](const char* recipe, double least, double most) {
    ASSERT_TRUE(rows.contains(recipe)) << recipe;
    EXPECT_GT(rows[recipe].gradient_error, least) << recipe;
    EXPECT_LT(rows[recipe].gradient_error, most) << recipe;
  };
  // The errors are worth some roundings of 2^-24 (f32), 2^-11 (f16), 2^-8 (bf16), 2^-4 (e4m3) and
  // 2^-3 (e5m2).
  expect_error("f32", 0x1p-26, 0x1p-18);
  expect_error("f16", 0x1p-13, 0x1p-7);
  expect_error("bf16", 0x1p-10, 0x1p-4);
  expect_error("fp8 tensorwise", 0x1p-6, 0x1p-1);
  expect_error("fp8 rowwise", 0x1p-6, 0x1p-1);
  EXPECT_GT(rows["fp8 tensorwise"].gradient_error, rows["bf16"].gradient_error);
  EXPECT_EQ(rows["bf16"].saturated, 0);
  for (const auto& [name, row] : rows) {
    ASSERT_EQ(row.losses.size(), 1u);
    EXPECT_NEAR(row.losses[0], rows["f32"].losses[0], 0.05) << name;
    EXPECT_GT(row.bytes, 0u);
  }
}

}  // namespace
}  // namespace ingot
