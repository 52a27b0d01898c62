// What is left of an earlier step's gradients (nn/param_store.h).
#include "ingot/nn/param_store.h"

#include <gtest/gtest.h>

namespace ingot {
namespace {

ParamList matrix_and_vector() {
  ParamList list;
  list.add({.name = "matrix", .shape = {4, 8}, .is_overwritten = true});
  list.add({.name = "vector", .shape = {4}});
  return list;
}

TEST(ResidentStore, OnlyTheFirstGradientsOfAStepAreOld) {
  const ParamList list = matrix_and_vector();
  ResidentStore store(list, DType::f32);
  EXPECT_EQ(store.open_gradients(0), OldGradients::kNone) << "gradients are zero at first";
  for (int step = 0; step < 2; ++step) {
    store.begin_step();
    EXPECT_EQ(store.open_gradients(0), OldGradients::kOverwritten) << "the update zeroed the vector";
    EXPECT_EQ(store.open_gradients(0), OldGradients::kNone) << "once";
  }
  const StoreState after = store.state();
  store.begin_step();
  store.replayed(after);
  EXPECT_EQ(store.open_gradients(0), OldGradients::kNone) << "the graph overwrote it";
}

TEST(ResidentStore, SaysWhichGradientsNeedNotBeZeroed) {
  const ParamList list = matrix_and_vector();
  ResidentStore store(list, DType::f32);
  const std::vector<ParamShard> shards = store.shards();
  EXPECT_TRUE(shards[0].is_overwritten);
  EXPECT_FALSE(shards[1].is_overwritten);
}

}  // namespace
}  // namespace ingot
