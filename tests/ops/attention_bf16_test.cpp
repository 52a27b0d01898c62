#include "ingot/ops/attention/attention_bf16.h"

#include <gtest/gtest.h>

#include <vector>

#include "tests/reference/numeric.h"

namespace ingot::test {
namespace {

#ifdef INGOT_ATTENTION_BF16
std::vector<tile::Bf16Unit> units_of_this_machine() {
  std::vector<tile::Bf16Unit> units = {tile::Bf16Unit::kAvx512};
  if (tile::bf16_unit() == tile::Bf16Unit::kAmx) units.push_back(tile::Bf16Unit::kAmx);
  return units;
}

// A machine with AMX tests both units, so the one that other machines use is tested there too.
TEST(AttentionBf16Units, MultiplyAPanelAndLeaveTheRowsBehindIt) {
  constexpr int64_t kDepth = 96, kMax = 64;
  const amx::Tiles tiles(tile::bf16_unit() == tile::Bf16Unit::kAmx);
  const Buffer a = random_tensor(DType::bf16, {kMax, kDepth}, 1),
               b = random_tensor(DType::bf16, {kDepth, 32}, 2);
  const Doubles a_values = to_doubles(a), b_values = to_doubles(b);
  const tile::Bf16Rows rows_a{static_cast<uint16_t*>(a.tensor().data), kDepth},
      rows_b{static_cast<uint16_t*>(b.tensor().data), 32};
  std::vector<uint32_t> pairs(kDepth / 2 * 32);
  tile::pair_rows({pairs.data(), 32}, rows_b, kDepth, 32);
  for (tile::Bf16Unit unit : units_of_this_machine())
    for (int64_t rows : {1, 31, 32, 33, 64})
      for (bool is_zero : {true, false}) {
        std::vector<float> c(kMax * 32, 7.0f);
        tile::multiply_panel(unit, {c.data(), 32}, is_zero, rows_a, {pairs.data(), 32}, rows, kDepth);
        for (int64_t i = 0; i < kMax; ++i)
          for (int64_t j = 0; j < 32; ++j) {
            double want = is_zero && i < rows ? 0 : 7, magnitude = want;
            for (int64_t k = 0; k < kDepth && i < rows; ++k) {
              const double product =
                  a_values[static_cast<size_t>(i * kDepth + k)] * b_values[static_cast<size_t>(k * 32 + j)];
              want += product;
              magnitude += std::abs(product);
            }
            // The sum of kDepth + 1 terms is rounded in f32 after each of them.
            const double bound = unit_roundoff(DType::f32) * kDepth * magnitude;
            ASSERT_NEAR(c[static_cast<size_t>(i * 32 + j)], want, bound)
                << rows << " rows, at " << i << "," << j;
          }
      }
}

TEST(AttentionBf16Units, PaddedColumnsAreZeroBehindTheLastKey) {
  constexpr int64_t kKeys = 96, D = 32;
  const Buffer v = random_tensor(DType::bf16, {kKeys, D}, 3);
  std::vector<uint16_t> transposed(D * kKeys), copy(D * 64, 0xffff);
  tile::transpose_rows({transposed.data(), kKeys}, {static_cast<uint16_t*>(v.tensor().data), D}, kKeys, D);
  const tile::Bf16Rows got = tile::padded_columns({transposed.data(), kKeys}, {copy.data(), 64}, 5, 41, D);
  for (int64_t d = 0; d < D; ++d)
    for (int64_t j = 0; j < 64; ++j)
      ASSERT_EQ(got.row(d)[j], j < 41 ? static_cast<uint16_t*>(v.tensor().data)[(5 + j) * D + d] : 0)
          << d << "," << j;
}
#else
TEST(AttentionBf16Units, AreAbsentFromThisBuild) { GTEST_SKIP() << "this build has no AVX512-BF16"; }
#endif

}  // namespace
}  // namespace ingot::test
