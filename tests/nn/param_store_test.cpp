// Old gradients, and the reductions that a store runs (nn/param_store.h).
#include "ingot/nn/param_store.h"

#include <gmock/gmock.h>

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

class RecordedReduction final : public GradientReduction {
 public:
  RecordedReduction(When when, std::vector<std::string>& calls) : GradientReduction(when), calls_(calls) {}
  void start_unit(int unit, const std::vector<bool>& is_complete) override {
    if (when != When::kUnit) return;
    const bool are_all = std::ranges::all_of(is_complete, [](bool is) { return is; });
    calls_.push_back(fmt::format("unit {}{}", unit, are_all ? ", the last" : ""));
  }
  void start_step() override {
    if (when == When::kStep) calls_.emplace_back("step");
  }
  std::vector<GradientSum> sums() const override { return {}; }
  void wait() override { calls_.emplace_back(when == When::kUnit ? "wait for units" : "wait for step"); }

 private:
  std::vector<std::string>& calls_;
};

// A model of two units; a stage holds the second only.
ParamList two_units() {
  ParamList list;
  list.add({.name = "first", .shape = {4, 8}});
  list.add({.name = "second", .shape = {4, 8}, .unit = 1});
  return list;
}

TEST(TrainingStore, RunsItsReductionsInTheLastMicroBatch) {
  using ::testing::ElementsAre;
  using When = GradientReduction::When;
  const ParamList list = two_units();
  ResidentStore store(list, DType::f32);
  std::vector<std::string> calls;
  store.add(std::make_unique<RecordedReduction>(When::kUnit, calls));
  store.add(std::make_unique<RecordedReduction>(When::kStep, calls));
  for (int step = 0; step < 2; ++step) {
    calls.clear();
    store.begin_step();
    for (const bool is_last : {false, true}) {
      store.begin_micro(is_last);
      store.start_reduction(1);
      store.start_reduction(0);
    }
    store.wait_gradients();
    EXPECT_THAT(calls, ElementsAre("unit 1", "unit 0, the last", "wait for units", "step", "wait for step"));
  }
  EXPECT_THROW(store.wait_gradients(), Error) << "no unit was complete";
}

TEST(TrainingStore, AReplayedPassCompletesItsUnits) {
  const ParamList list = two_units();
  ResidentStore store(list, DType::f32);
  std::vector<std::string> calls;
  store.add(std::make_unique<RecordedReduction>(GradientReduction::When::kUnit, calls));
  store.start_reduction(1);
  const StoreState after = store.state();
  store.start_reduction(0);
  store.wait_gradients();
  calls.clear();
  store.replayed(after);  // the graph of the pass of unit 1
  store.start_reduction(0);
  EXPECT_THAT(calls, ::testing::ElementsAre("unit 0, the last"));
  store.wait_gradients();
}

// Rank 1 of 2 replicas of 2 shards of 4 slices, as the last of 2 stages.
TEST(TrainingStore, KnowsTheRanksThatHoldAParameter) {
  ParamList list = two_units();
  list.add({.name = "slice", .shape = {4, 8}, .slice = {.full = {16, 8}, .rows = {{0, 4}}}, .unit = 1});
  const ParamList held = list.keeping([](int unit) { return unit == 1; });
  ResidentStore store(held, DType::f32);
  EXPECT_FALSE(store.is_sharded());
  store.place(list, {.data = {2, 1}, .shards = {2, 1}, .tensor = {4, 3}, .is_owner = [](int unit) {
                       return unit == 1;
                     }});
  EXPECT_TRUE(store.is_sharded());
  EXPECT_EQ(store.list()[0].elements(), 32) << "checkpoints have the parameters of all stages";
  const auto numbers = [](Replicas r) { return std::pair{r.count, r.index}; };
  EXPECT_EQ(numbers(store.replicas(0)), std::pair(int64_t{0}, int64_t{0})) << "another stage saves it";
  EXPECT_EQ(numbers(store.replicas(1)), std::pair(int64_t{8}, int64_t{7})) << "all slices have copies";
  EXPECT_EQ(numbers(store.replicas(2)), std::pair(int64_t{2}, int64_t{1}));
  EXPECT_EQ(numbers(store.shard_group(2)), std::pair(int64_t{16}, int64_t{15}));
  EXPECT_FALSE(store.shards()[0].contributes_to_norm);
  EXPECT_FALSE(store.shards()[1].contributes_to_norm) << "the first tensor-parallel rank counts it";
  EXPECT_TRUE(store.shards()[2].contributes_to_norm);
  const auto written = [&](size_t i) {
    const Range range = store.written(store.shards()[i]);
    return std::pair{range.begin, range.end};
  };
  EXPECT_EQ(written(0), std::pair(int64_t{0}, int64_t{0}));
  EXPECT_EQ(written(2), std::pair(int64_t{16}, int64_t{32})) << "the second of its two replicas";
}

}  // namespace
}  // namespace ingot
