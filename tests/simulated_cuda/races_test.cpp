// The simulated device finds mistakes by name: each planted one, and none in the same code without it.
#include <gtest/gtest.h>

#include "tests/simulated_cuda/mistakes.h"

namespace {

using simulated_cuda::Mistake;

class PlantedMistake : public testing::TestWithParam<Mistake> {};

TEST_P(PlantedMistake, IsFoundByName) { EXPECT_DEATH(GetParam().make(), GetParam().found); }

INSTANTIATE_TEST_SUITE_P(All, PlantedMistake, testing::ValuesIn(simulated_cuda::mistakes()),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(PlantedMistakes, AreNotSeenWhereThereAreNone) { simulated_cuda::make_none(); }

}  // namespace
