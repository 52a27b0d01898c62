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

TEST(ResidentStore, TheFirstGradientOfAStepOverwrites) {
  const ParamList list = matrix_and_vector();
  ResidentStore store(list, DType::f32);
  EXPECT_FALSE(store.overwrites(0)) << "gradients are zero at first";
  for (int step = 0; step < 2; ++step) {
    store.begin_step();
    EXPECT_FALSE(store.overwrites(1)) << "a vector is added to";
    EXPECT_TRUE(store.overwrites(0));
    EXPECT_FALSE(store.overwrites(0)) << "once";
  }
  store.begin_step();
  store.replayed();
  EXPECT_FALSE(store.overwrites(0)) << "the graph did";
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
