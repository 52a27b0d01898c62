#include "ingot/optim/parameter_groups.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ingot {
namespace {

TEST(ParameterGroups, PatternsFitWholeNames) {
  EXPECT_TRUE(matches("*", ""));
  EXPECT_TRUE(matches("*", "blocks.0.mlp.up.weight"));
  EXPECT_TRUE(matches("blocks.*.mlp.*.weight", "blocks.12.mlp.up.weight"));
  EXPECT_TRUE(matches("blocks.?.mlp.up.weight", "blocks.3.mlp.up.weight"));
  EXPECT_TRUE(matches("*.weight", "a.weight.b.weight"));
  EXPECT_TRUE(matches("a*b*c", "aXbYbZc"));
  EXPECT_TRUE(matches("head.weight", "head.weight"));
  EXPECT_TRUE(matches("head.weight**", "head.weight"));
  EXPECT_FALSE(matches("head", "head.weight"));
  EXPECT_FALSE(matches("blocks.?.x", "blocks.12.x"));
  EXPECT_FALSE(matches("*.bias", "a.bias.weight"));
  EXPECT_FALSE(matches("a*b", "aXc"));
  EXPECT_FALSE(matches("", "a"));
  EXPECT_FALSE(matches("a?", "a"));
}

TEST(ParameterGroups, TheFirstMatchingGroupIsUsed) {
  const std::vector<OptimParam> params{{.name = "embedding.weight", .role = ParamRole::kEmbedding},
                                       {.name = "blocks.0.a.weight", .role = ParamRole::kMatrix},
                                       {.name = "blocks.0.b.weight", .role = ParamRole::kMatrix},
                                       {.name = "head.norm.weight", .role = ParamRole::kNorm}};
  const std::vector<GroupConfig> groups{{.roles = {ParamRole::kMatrix}, .match = {"*.b.*", "head.*"}},
                                        {.match = {"blocks.*"}},
                                        {.roles = {ParamRole::kEmbedding, ParamRole::kMatrix}}};
  EXPECT_THAT(assign_groups(groups, params), ::testing::ElementsAre(2, 1, 0, -1));
}

}  // namespace
}  // namespace ingot
