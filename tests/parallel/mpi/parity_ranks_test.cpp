// Compares several ranks with one rank in the cases that matrix_ranks_test does not cover.
#include <algorithm>
#include <limits>

#include "tests/parallel/mpi/one_rank_curve.h"
#include "tests/train/gradients.h"

namespace ingot {
namespace {

TEST(Parity, ReplicasWithoutF32MastersMatchOneRank) {
  for (const Masters masters : {Masters::kNone, Masters::kTail}) {
    RunConfig config = llama();
    config.precision = {.compute = DType::bf16, .master = masters};
    config.parallel = replicas();
    expect_one_rank_curve(config, kBf16);
  }
}

TEST(Parity, CompressedGradientsWithFeedbackStayClose) {
  for (const DType payload : {DType::bf16, DType::f16}) {
    RunConfig config = gpt2();
    config.parallel = replicas();
    config.parallel.payload = payload;
    config.parallel.has_error_feedback = true;
    expect_one_rank_curve(config, kCompressed);
  }
}

TEST(Parity, ShardsOfGradientsAloneMatchOneRank) {
  RunConfig relative = llama();
  relative.model.has_qkv_bias = relative.model.has_qk_norm = relative.model.has_qk_norm_gain = true;
  relative.model.window = 6;
  for (RunConfig config : {llama(), gpt2(), relative}) {
    config.parallel = shards(true);
    expect_one_rank_curve(config, kF32);
  }
}

// Backward gathers the weights of recomputed blocks again, in the order in which it needs them.
TEST(Parity, ShardsWithActivationCheckpointingAndAveragesMatchOneRank) {
  RunConfig config = llama();
  config.activations.policy = RecomputePolicy::kEveryK;
  config.activations.k = 2;
  config.optimizer.ema = 0.9;
  config.parallel = shards();
  expect_one_rank_curve(config, kF32);
}

// The masters, gradients and moments of each unit are cut into equal shards, one per rank; the shard of
// the last rank may be shorter.
TEST(Parity, ARankTakesTheBytesOfItsShard) {
  RunConfig config = llama();
  config.model.width = 256;
  config.parallel = shards();
  Mesh mesh = Mesh::make(*world, mesh_shape(config.parallel));
  Training shared(config, mesh);
  double elements = 0;
  for (const ParamSpec& spec : shared.trainer.layout().model->params().specs())
    elements += static_cast<double>(spec.elements());
  const auto expect_bytes = [&](const char* name, double bytes_per_parameter) {
    double used = 0;
    for (const Trainer::ArenaUse& use : shared.trainer.arenas())
      if (use.name == name) used = static_cast<double>(use.bytes);
    const double share = bytes_per_parameter * elements / world->size();
    EXPECT_LE(used, 1.01 * share) << name;
    std::vector<double> all{used};
    world->sum(all);
    EXPECT_NEAR(all[0], bytes_per_parameter * elements, 0.01 * bytes_per_parameter * elements) << name;
  };
  expect_bytes("parameters", 4);
  expect_bytes("gradients", 4);
  expect_bytes("optimizer", 8);
}

// Tensor-parallel ranks sum each product over the ranks, so activations differ in their last bits at
// every step.
TEST(Parity, TensorParallelUpToTheNumberOfHeadsMatchesOneRank) {
  for (RunConfig config : {with_many_heads(llama()), with_many_heads(gpt2())}) {
    config.parallel = sharing(8);
    expect_one_rank_curve(config, kF32);
  }
}

TEST(Parity, LayoutsThatCannotBeShardedAreRefused) {
  if (world->size() == 1) return;
  RunConfig config = llama();
  config.parallel = sharing(2);
  config.model.kv_heads = 1;
  Mesh mesh = Mesh::make(*world, mesh_shape(config.parallel));
  EXPECT_THROW(Training(config, mesh), Error);
}

TEST(Parity, EverySampleIsSeenOnceInTheOrderOfOneRank) {
  RunConfig config = llama();
  config.parallel = replicas();
  Mesh mesh = Mesh::make(*world, mesh_shape(config.parallel));
  Training shared(config, mesh);
  const DataShard& share = shared.trainer.layout().data_shard;
  std::vector<int64_t> own;
  for (int64_t round = 0; round < 3 * share.micros(config.train.grad_accum); ++round) {
    const int64_t first = shared.loader.next().first_sample;
    for (int64_t row = 0; row < share.batch_size; ++row) own.push_back(first + row);
  }
  std::vector<int64_t> all(own.size() * static_cast<size_t>(world->size()));
  world->all_gather_into("samples", Tensor(all.data(), DType::i64, {std::ssize(all)}),
                         Tensor(own.data(), DType::i64, {std::ssize(own)}));
  std::sort(all.begin(), all.end());
  for (size_t i = 0; i < all.size(); ++i) ASSERT_EQ(all[i], static_cast<int64_t>(i));
  EXPECT_EQ(all.size(), 48u);
}

// Only one rank reads a NaN weight, but all ranks end the step with its report.
TEST(Parity, ANonFiniteValueOnOneRankIsReportedByAll) {
  RunConfig config = llama();
  config.parallel = replicas();
  Mesh mesh = Mesh::make(*world, mesh_shape(config.parallel));
  Training shared(config, mesh);
  shared.trainer.params().master(0).as<float>()[kRare * 32 + 5] = std::numeric_limits<float>::quiet_NaN();
  StepResult result;
  for (int step = 0; step < 200 && !result.non_finite; ++step) {
    result = gradients(shared.trainer, shared.loader, config.train.grad_accum);
    shared.trainer.discard();
  }
  ASSERT_TRUE(result.non_finite);
  std::string text = result.non_finite->text(), lead = text;
  world->broadcast_text(lead, 0);
  EXPECT_EQ(text, lead);
  EXPECT_NE(text.find("the loss is not finite in micro-batch"), std::string::npos) << text;
  EXPECT_NE(text.find("weight embedding.weight"), std::string::npos) << text;
}

// All ranks have the same history for delayed scaling, because they use the same scales in the next step.
TEST(Parity, DelayedScalesAreThoseOfAllRanks) {
  RunConfig config = gpt2();
  config.precision.compute = DType::bf16;
  config.precision.fp8 = {.recipe = Fp8Recipe::kDelayed, .amax_history = 4};
  config.parallel = replicas();
  Mesh mesh = Mesh::make(*world, mesh_shape(config.parallel));
  Training shared(config, mesh);
  for (int step = 0; step < 5; ++step) shared.trainer.step(shared.loader, {.lr = 1e-3});
  expect_equal_on_all_ranks(shared.trainer.state().fp8.amaxes());
}

}  // namespace
}  // namespace ingot

int main(int argc, char** argv) { return ingot::run_on_ranks(argc, argv); }
