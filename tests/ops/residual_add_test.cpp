#include "ingot/ops/residual_add.h"

#include <gtest/gtest.h>

#include "tests/reference/numeric.h"

namespace ingot::test {
namespace {

TEST(ResidualAdd, AddsAndRoundsOnce) {
  Stream stream;
  for (DType dtype : {DType::f32, DType::bf16})
    for (int64_t C : {1, 31, 32, 33, 257}) {
      const Buffer x = random_tensor(dtype, {3, C}, 1), y = random_tensor(dtype, {3, C}, 2);
      Doubles want = to_doubles(x);
      const Doubles other = to_doubles(y);
      for (size_t i = 0; i < want.size(); ++i) want[i] += other[i];
      const Buffer rounded(dtype, {3, C});
      assign(rounded, want);
      const Buffer sum(dtype, {3, C});
      residual_add(sum, x, y, stream);
      EXPECT_EQ(to_doubles(sum), to_doubles(rounded));
      residual_add(y, x, y, stream);  // in place
      EXPECT_EQ(to_doubles(y), to_doubles(rounded));
    }
}

}  // namespace
}  // namespace ingot::test
