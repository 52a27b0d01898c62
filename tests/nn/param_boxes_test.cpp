#include <gmock/gmock.h>

#include "ingot/nn/param_store.h"

namespace ingot {
namespace {

using ::testing::ElementsAre;

ParamSpec whole_matrix() { return {.name = "w", .shape = {6, 10}}; }

TEST(BoxesOf, AWholeMatrixIsOneBox) {
  EXPECT_THAT(boxes_of(whole_matrix(), 0, 60), ElementsAre(Box{0, 6, 0, 10}));
  EXPECT_TRUE(boxes_of(whole_matrix(), 20, 20).empty());
}

TEST(BoxesOf, ARangeIsTheEndOfARowWholeRowsAndTheStartOfOne) {
  EXPECT_THAT(boxes_of(whole_matrix(), 13, 47),
              ElementsAre(Box{1, 1, 3, 7}, Box{2, 2, 0, 10}, Box{4, 1, 0, 7}));
  EXPECT_THAT(boxes_of(whole_matrix(), 13, 15), ElementsAre(Box{1, 1, 3, 2}));
  EXPECT_THAT(boxes_of(whole_matrix(), 18, 23), ElementsAre(Box{1, 1, 8, 2}, Box{2, 1, 0, 3}));
}

TEST(BoxesOf, AVectorIsAColumn) {
  const ParamSpec vector{.name = "v", .shape = {300}};
  EXPECT_THAT(boxes_of(vector, 256, 300), ElementsAre(Box{256, 44, 0, 1}));
}

// Rows 4 to 6 of a first matrix and 12 to 13 of a second, both 10 wide.
TEST(BoxesOf, SharedRowsLieWhereTheLogicalTensorHasThem) {
  const ParamSpec spec{
      .name = "qkv",
      .shape = {5, 10},
      .part = {.full = {20, 10}, .rows = {{.first = 4, .count = 3}, {.first = 12, .count = 2}}}};
  EXPECT_THAT(boxes_of(spec, 0, 50), ElementsAre(Box{4, 3, 0, 10}, Box{12, 2, 0, 10}));
  EXPECT_THAT(boxes_of(spec, 15, 42),
              ElementsAre(Box{5, 1, 5, 5}, Box{6, 1, 0, 10}, Box{12, 1, 0, 10}, Box{13, 1, 0, 2}));
}

TEST(BoxesOf, SharedColumnsBeginWhereTheyAre) {
  const ParamSpec spec{.name = "down",
                       .shape = {6, 5},
                       .part = {.full = {6, 20}, .rows = {{.first = 0, .count = 6}}, .first_column = 10}};
  EXPECT_THAT(boxes_of(spec, 0, 30), ElementsAre(Box{0, 6, 10, 5}));
  EXPECT_THAT(boxes_of(spec, 3, 12), ElementsAre(Box{0, 1, 13, 2}, Box{1, 1, 10, 5}, Box{2, 1, 10, 2}));
}

}  // namespace
}  // namespace ingot
