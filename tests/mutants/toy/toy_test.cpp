#include <gtest/gtest.h>

#include <cstdlib>

#include <ingot/ops/toy.h>

namespace toy {
namespace {

TEST(Toy, AddsUp) {
  EXPECT_EQ(sum_to_ten(3, 4), 7);
  EXPECT_EQ(sum_to_ten(30, 4), 10);
}

TEST(Toy, StopsAtZero) { EXPECT_EQ(steps_to_zero(3), 3); }

TEST(Toy, LooksAtNothing) { product(2, 3); }

TEST(Toy, StartsTheProgram) { EXPECT_EQ(WEXITSTATUS(std::system(INGOT_PROGRAM " 4")), 8); }

}  // namespace
}  // namespace toy
