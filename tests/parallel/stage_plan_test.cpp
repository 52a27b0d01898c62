#include "ingot/parallel/stage_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ingot/core/error.h"
#include "ingot/parallel/parallelize.h"
#include "tests/config/built_config.h"
#include "tests/reference/error_of.h"

namespace ingot {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

ModelConfig six_layers(bool is_tied) {
  ModelConfig model{.layers = 6, .heads = 2, .width = 32, .context = 16, .vocab = 64};
  model.is_tied = is_tied;
  return model.resolved();
}

ParallelConfig pipeline(int64_t pp, int64_t chunks) {
  ParallelConfig parallel;
  parallel.pp = pp;
  parallel.chunks = chunks;
  return parallel;
}

TEST(StagePlan, AssignsConsecutiveUnitsByCost) {
  // Costs of the embedding, six blocks, and a head that costs as much as three blocks.
  const StagePlan plan = plan_stages(six_layers(false), pipeline(3, 1), {0.1, 1, 3});
  EXPECT_THAT(plan.first_units, ElementsAre(0, 4, 7, 8));
  EXPECT_EQ(plan.to_string(), "units 0-3 | 4-6 | 7");
  EXPECT_EQ(plan.owner(0), 0);
  EXPECT_EQ(plan.owner(6), 1);
  EXPECT_EQ(plan.owner(7), 2);
  for (int unit = 0; unit < 8; ++unit)
    for (int rank = 0; rank < 3; ++rank) EXPECT_EQ(plan.keeps(rank, unit), plan.owner(unit) == rank);
}

TEST(StagePlan, InterleavedStagesGoRound) {
  const StagePlan plan = plan_stages(six_layers(true), pipeline(2, 2), {1, 1, 1});
  EXPECT_THAT(plan.first_units, ElementsAre(0, 2, 4, 6, 8));
  EXPECT_EQ(plan.chunks(), 2);
  EXPECT_EQ(plan.units(0, 1).first, 4);
  EXPECT_EQ(plan.units(1, 1).end, 8);
  EXPECT_EQ(plan.owner(2), 1);
  EXPECT_EQ(plan.owner(5), 0);
  // The first rank owns the table of a tied model, and the last rank keeps a copy.
  EXPECT_EQ(plan.owner(0), 0);
  EXPECT_TRUE(plan.keeps(1, 0) && plan.is_shared(0) && !plan.is_shared(1));
  EXPECT_FALSE(plan_stages(six_layers(true), pipeline(1, 1), {1, 1, 1}).is_shared(0));
}

TEST(StagePlan, NeedsAUnitForEachStage) {
  EXPECT_NO_THROW(plan_stages(six_layers(true), pipeline(4, 2), {1, 1, 1}));
  EXPECT_THROW(plan_stages(six_layers(true), pipeline(3, 3), {1, 1, 1}), Error);
}

TEST(StagePlan, MeasuresEveryKindOfUnit) {
  RunConfig config;
  Stream stream;
  for (const DType compute : {DType::f32, DType::bf16}) {
    config.precision.compute = compute;
    const std::vector<double> costs = measure_unit_costs(config, six_layers(true), 2, 2, stream);
    ASSERT_EQ(costs.size(), 3u);
    for (const double cost_s : costs) EXPECT_GT(cost_s, 0);
  }
}

// Ids and offsets stay the same, and parameters of other units have no elements.
TEST(ParamList, KeepsTheParametersOfSomeUnits) {
  const Transformer model(six_layers(true), DType::f32);
  const ParamList& all = model.params();
  const ParamList some = all.keeping([](int unit) { return unit == 0 || unit == 3; });
  ASSERT_EQ(some.specs().size(), all.specs().size());
  int64_t elements = 0;
  for (int id = 0; id < static_cast<int>(all.specs().size()); ++id) {
    const bool is_kept = all[id].unit == 0 || all[id].unit == 3;
    EXPECT_EQ(some[id].name, all[id].name);
    EXPECT_EQ(some[id].is_vector(), all[id].is_vector());
    EXPECT_EQ(some[id].elements(), is_kept ? all[id].elements() : 0);
    EXPECT_EQ(some[id].offset, is_kept ? all[id].offset : 0);
  }
  for (int unit = 0; unit < all.units(); ++unit) {
    EXPECT_EQ(some.unit_elements(unit), unit == 0 || unit == 3 ? all.unit_elements(unit) : 0);
    elements += some.unit_elements(unit);
  }
  EXPECT_EQ(some.elements(), elements);
  ResidentStore store(some, DType::bf16);
  init_params(store, 1);
  Stream stream;
  store.refresh_compute(stream);
  EXPECT_EQ(store.shards().size(), all.specs().size());
}

TEST(CheckLayout, ChecksThePipelineToo) {
  const auto refusal = [](RunConfig config) -> std::string {
    config.model = six_layers(true);
    config.train.grad_accum = 6;
    return error_of([&] { check_layout(config, static_cast<int>(config.parallel.ranks())); });
  };
  RunConfig config;
  config.parallel = pipeline(2, 1);
  EXPECT_EQ(refusal(config), "no error");
  config.parallel.chunks = 2;
  EXPECT_THAT(refusal(config), HasSubstr("parallel.chunks must be 1 unless parallel.schedule"));
  config.parallel.schedule = PipelineKind::kInterleaved;
  EXPECT_EQ(refusal(config), "no error");
  config.parallel.dp = 2;  // each replica has three micro-batches
  EXPECT_THAT(refusal(config), HasSubstr("multiple of parallel.pp = 2"));
  config.parallel = pipeline(9, 1);
  EXPECT_THAT(refusal(config), HasSubstr("must lie in 1 .. 8"));
}

TEST(CheckLayout, AcceptsTheDocumentedExample) {
  const RunConfig config = built_config(INGOT_SOURCE_DIR "/examples/gpt2-124m-3d.toml", {});
  EXPECT_EQ(config.parallel.to_string(), "dp=2 tp=2 pp=2 chunks=2");
  EXPECT_NO_THROW(check_layout(config, 8));
}

}  // namespace
}  // namespace ingot
