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
  // A gradient's error is about the unit roundoff of its format: 2^-11 (f16), 2^-9 (bf16), 2^-4 (e4m3) and
  // 2^-3 (e5m2), to which few products round. In f32 it is several of 2^-24, because sums are rounded too.
  expect_error("f32", 0x1p-23, 0x1p-20);
  expect_error("f16", 0x1p-12, 0x1p-10);
  expect_error("f16, no loss scale", 0x1p-12, 0x1p-9);
  expect_error("bf16", 0x1p-9, 0x1p-7);
  expect_error("bf16, f32 head", 0x1p-9, 0x1p-7);
  for (const char* recipe : {"bf16, fp8 head, static", "bf16, fp8 head, current", "fp8 tensorwise",
                             "fp8 rowwise", "fp8 rowwise_gw_hp", "fp8 delayed"})
    expect_error(recipe, 0x1p-5, 0x1p-4);
  expect_error("fp8 delayed, fp8 head", 0x1p-5, 0x1p-3);
  EXPECT_EQ(rows.size(), 12u);
  for (const auto& [name, row] : rows) {
    ASSERT_EQ(row.losses.size(), 1u);
    EXPECT_NEAR(row.losses[0], rows["f32"].losses[0], 0.002) << name;
    EXPECT_GT(row.bytes, 0u);
    // A cast to FP8 loses few values; the other recipes have no such cast.
    const bool has_fp8 = name.find("fp8") != std::string::npos;
    EXPECT_LT(row.saturated, has_fp8 ? 1e-5 : 1e-300) << name;
    EXPECT_LT(row.underflowed, has_fp8 ? 1e-3 : 1e-300) << name;
  }
}

}  // namespace
}  // namespace ingot
