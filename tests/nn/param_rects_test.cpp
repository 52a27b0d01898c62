#include <gmock/gmock.h>

#include "ingot/nn/param_store.h"

namespace ingot {
namespace {

using ::testing::ElementsAre;

ParamSpec whole_matrix() { return {.name = "w", .shape = {6, 10}}; }

TEST(RectsOf, AWholeMatrixIsOneRect) {
  EXPECT_THAT(rects_of(whole_matrix(), 0, 60), ElementsAre(Rect{0, 6, 0, 10}));
  EXPECT_TRUE(rects_of(whole_matrix(), 20, 20).empty());
}

TEST(RectsOf, ARangeSplitsIntoARowsEndWholeRowsAndARowsStart) {
  EXPECT_THAT(rects_of(whole_matrix(), 13, 47),
              ElementsAre(Rect{1, 1, 3, 7}, Rect{2, 2, 0, 10}, Rect{4, 1, 0, 7}));
  EXPECT_THAT(rects_of(whole_matrix(), 13, 15), ElementsAre(Rect{1, 1, 3, 2}));
  EXPECT_THAT(rects_of(whole_matrix(), 18, 23), ElementsAre(Rect{1, 1, 8, 2}, Rect{2, 1, 0, 3}));
}

TEST(RectsOf, AVectorIsAColumn) {
  const ParamSpec vector{.name = "v", .shape = {300}};
  EXPECT_THAT(rects_of(vector, 256, 300), ElementsAre(Rect{256, 44, 0, 1}));
}

// The shard has rows 4 to 6 and rows 12 to 13 of a fused tensor that is 10 wide.
TEST(RectsOf, ShardedRowsKeepTheirPlaceInTheLogicalTensor) {
  const ParamSpec spec{
      .name = "qkv",
      .shape = {5, 10},
      .slice = {.full = {20, 10}, .rows = {{.first = 4, .count = 3}, {.first = 12, .count = 2}}}};
  EXPECT_THAT(rects_of(spec, 0, 50), ElementsAre(Rect{4, 3, 0, 10}, Rect{12, 2, 0, 10}));
  EXPECT_THAT(rects_of(spec, 15, 42),
              ElementsAre(Rect{5, 1, 5, 5}, Rect{6, 1, 0, 10}, Rect{12, 1, 0, 10}, Rect{13, 1, 0, 2}));
}

TEST(RectsOf, ShardedColumnsKeepTheirPlaceInTheLogicalTensor) {
  const ParamSpec spec{.name = "down",
                       .shape = {6, 5},
                       .slice = {.full = {6, 20}, .rows = {{.first = 0, .count = 6}}, .first_column = 10}};
  EXPECT_THAT(rects_of(spec, 0, 30), ElementsAre(Rect{0, 6, 10, 5}));
  EXPECT_THAT(rects_of(spec, 3, 12), ElementsAre(Rect{0, 1, 13, 2}, Rect{1, 1, 10, 5}, Rect{2, 1, 10, 2}));
}

}  // namespace
}  // namespace ingot
