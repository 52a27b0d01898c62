// Tests that checkpoints do not depend on the layout that saved them: a run resumes in any other layout.
#include "tests/parallel/mpi/hand_over.h"

namespace ingot {
namespace {

TEST(Elastic, ARunResumesInAnyLayout) {
  const ParallelConfig one;
  expect_undisturbed(llama(), {replicas(), shards(), one, replicas()});
  expect_undisturbed(llama(), {one, replicas_of_shards(), replicas(), one});
  expect_undisturbed(gpt2(), {shards(), replicas_of_shards(), shards(true), shards()});
  // 8-bit states are rounded at every step, in a direction that depends on the order of a sum.
  expect_undisturbed(with_8bit(gpt2()), {shards(), one, replicas(), shards()}, 0x1p-12);
}

TEST(Elastic, ARunResumesWithTensorParallelismAndBack) {
  const ParallelConfig one;
  RunConfig config = with_many_heads(llama());
  expect_undisturbed(config, {sharing(8), one, sharing(2), sharing_of_shards()});
  config.optimizer.ema = 0.9;
  config.model.has_bias = true;
  expect_undisturbed(config, {replicas(), sharing(2), shards(), sharing(2, false)});
}

// A checkpoint has every kv-head once.
TEST(Elastic, ARunWithSharedKvHeadsResumesInAnyLayout) {
  RunConfig config = with_many_heads(llama());
  config.model.kv_heads = 1;
  config.model.has_qkv_bias = true;
  config.optimizer.ema = 0.9;
  expect_undisturbed(config, {sharing(4), ParallelConfig{}, sharing_of_shards(), shards()});
  RunConfig eight_bit = with_8bit(config);
  eight_bit.model.width = 64;
  expect_undisturbed(eight_bit, {sharing(2), sharing(8), replicas()}, 0x1p-12);
}

TEST(Elastic, ARunResumesWithStagesAndBack) {
  const PipelineKind kOneFOneB = PipelineKind::kOneFOneB;
  const ParallelConfig one;
  ParallelConfig stages_of_shards = stages(2, kOneFOneB);
  std::swap(stages_of_shards.dp, stages_of_shards.fsdp);
  RunConfig config = for_stages(gpt2());
  expect_undisturbed(config, {stages(8, kOneFOneB), one, stages(2, PipelineKind::kGpipe), shards()});
  config = for_stages(llama());
  config.model.is_tied = false;
  config.optimizer.ema = 0.9;
  expect_undisturbed(config, {sharing(2), stages(2, PipelineKind::kInterleaved, 2, 2), stages_of_shards,
                              stages(4, kOneFOneB)});
}

// The tolerance is that of bf16 (kBf16 in one_rank_curve.h).
TEST(Elastic, ARunWithoutF32MastersResumesInOtherLayouts) {
  for (const Masters masters : {Masters::kTail, Masters::kNone}) {
    RunConfig config = for_stages(llama());
    config.precision = {.compute = DType::bf16, .master = masters};
    expect_undisturbed(config, {ParallelConfig{}, sharing(2), stages(2, PipelineKind::kOneFOneB), replicas()},
                       2 * 0x1p-9);
    expect_undisturbed(config, {shards(), ParallelConfig{}, sharing_of_shards(), replicas_of_shards()},
                       2 * 0x1p-9);
  }
}

// A checkpoint has the adapters alone.
TEST(Elastic, ARunOfAdaptersResumesInAnyLayout) {
  RunConfig config = with_adapters(for_stages(llama()), {"blocks.3.*", "blocks.5.attention.*"});
  config.model.kv_heads = 1;
  config.model.dropout = 0;
  config.optimizer.ema = 0.9;
  expect_undisturbed(config, {shards(), stages(4, PipelineKind::kOneFOneB), sharing(4), ParallelConfig{},
                              sharing_of_shards(), shards(true)});
}

TEST(Elastic, AveragesResumeToo) {
  RunConfig config = llama();
  config.optimizer.ema = 0.9;
  expect_undisturbed(config, {shards(), replicas(), shards()});
}

}  // namespace
}  // namespace ingot

int main(int argc, char** argv) { return ingot::run_on_ranks(argc, argv); }
