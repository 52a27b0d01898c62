#include "ingot/ops/accumulate.h"

#include <gtest/gtest.h>

#include "ingot/core/error.h"
#include "tests/reference/numeric.h"

namespace ingot::test {
namespace {

TEST(Accumulate, AddsInF32) {
  Stream stream;
  for (DType dtype : {DType::f32, DType::bf16, DType::f16})
    for (int64_t n : {1, 31, 70'000}) {
      const Buffer from = random_tensor(dtype, {n}, 1), to = random_tensor(DType::f32, {n}, 2);
      const Doubles before = to_doubles(to), more = to_doubles(from);
      accumulate(to, from, stream);
      const Doubles after = to_doubles(to);
      for (size_t i = 0; i < after.size(); ++i)
        ASSERT_EQ(after[i], static_cast<double>(static_cast<float>(before[i]) + static_cast<float>(more[i])))
            << name(dtype) << " " << i;
    }
}

TEST(Accumulate, ErrorsNameTheTensor) {
  Stream stream;
  const Buffer short_one = zeros(DType::f32, {3}), from = zeros(DType::bf16, {4}),
               half = zeros(DType::bf16, {4});
  EXPECT_THROW(accumulate(short_one, from, stream), Error);
  EXPECT_THROW(accumulate(half, from, stream), Error);
}

}  // namespace
}  // namespace ingot::test
