// Tests every update rule in the layouts that shard parameters: losses are those of one rank, and any
// other layout can resume from the checkpoints.
#include "tests/parallel/mpi/hand_over.h"
#include "tests/parallel/mpi/one_rank_curve.h"

namespace ingot {
namespace {

// A step is one micro-batch, whose rows are split over the ranks.
RunConfig small(RunConfig c) {
  c = with_many_heads(std::move(c));
  c.model.layers = 2;
  c.train.batch_size = 8;
  c.train.grad_accum = 1;
  return c;
}

// Enables NorMuon and cautious decay, in f32, so that layouts can be compared to the last bits.
RunConfig with_every_muon_option(RunConfig c) {
  c = with_muon(std::move(c), DType::f32);
  c.optimizer.groups[0].rule.options.set(&Muon::Options::normuon, true);
  c.optimizer.groups[0].rule.options.set(&Muon::Options::cautious_decay, true);
  c.parallel.muon_payload = DType::f32;
  return c;
}

ParallelConfig with_payload(ParallelConfig layout, DType payload) {
  layout.muon_payload = payload;
  return layout;
}

TEST(Rules, ShardsHaveTheLossesOfOneRank) {
  for (const RuleEntry& rule : rules()) {
    // Other tests train with AdamW, with 8-bit states, which need wider matrices, and with Muon.
    if (rule.is_matrix_rule || rule.name == "adamw" || rule.name == "adamw8bit") continue;
    RunConfig config = with_rule(small(gpt2()), std::string(rule.name));
    for (const ParallelConfig& layout : {shards(), sharing_of_shards()}) {
      config.parallel = layout;
      expect_one_rank_curve(config, kF32);
    }
  }
}

TEST(Rules, AdafactorWithRelativeStepsMatchesOneRank) {
  RunConfig config = with_rule(small(llama()), "adafactor");
  config.optimizer.rule.options.set(&Adafactor::Options::relative_step, true);
  config.optimizer.lr = 0.2;
  config.parallel = sharing(8);
  expect_one_rank_curve(config, kF32);
}

TEST(Rules, EightBitStatesUnderTensorParallelismMatchOneRank) {
  for (const ParallelConfig& layout : {sharing(8), sharing_of_shards()}) {
    RunConfig config = with_8bit(small(gpt2()));
    config.model.width = 64;
    config.parallel = layout;
    expect_one_rank_curve(config, kEdge);
  }
}

TEST(Rules, MuonWithEveryOptionMatchesOneRank) {
  RunConfig config = with_every_muon_option(small(llama()));
  config.parallel = with_payload(replicas_of_shards(), DType::f32);
  expect_one_rank_curve(config, kF32);
}

// A direction is rounded once, before it is sent, by 2^-9 of each number. kEdge says how this changes
// the loss.
TEST(Rules, MuonWithDirectionsInBf16MatchesOneRank) {
  RunConfig config = with_muon(small(llama()), DType::bf16);
  config.parallel = with_payload(replicas(), DType::bf16);
  expect_one_rank_curve(config, kEdge);
}

// With replicas, only the owner of a matrix keeps its momentum. With shards, every rank keeps the
// momentum of its shards.
TEST(Rules, TheMomentumIsStoredOnce) {
  RunConfig config = with_every_muon_option(small(llama()));
  double wanted = 0;
  {
    Training alone(config);
    for (const Optimizer::State& state : alone.trainer.state().optimizer.states())
      if (state.name.starts_with("momentum.") || state.name.starts_with("second."))
        wanted += static_cast<double>(state.tensor.elements());
  }
  for (const ParallelConfig& layout : {replicas(), shards(), replicas_of_shards()}) {
    config.parallel = layout;
    Mesh mesh = Mesh::make(*world, mesh_shape(layout));
    Training shared(config, mesh);
    std::vector<double> kept{0};
    for (const Optimizer::State& state : shared.trainer.state().optimizer.states())
      if (state.scope == Optimizer::ReplicaScope::kNone)
        kept[0] += static_cast<double>(state.tensor.elements());
    world->sum(kept);
    EXPECT_EQ(kept[0], wanted) << layout.to_string();
  }
}

TEST(Rules, ElementwiseStatesResumeInAnyLayout) {
  const ParallelConfig one;
  expect_undisturbed(with_rule(small(gpt2()), "lion"), {shards(), sharing(2), shards()});
  expect_undisturbed(with_rule(small(gpt2()), "momentum"), {sharing_of_shards(), one, shards()});
}

TEST(Rules, FactoredStatesResumeInAnyLayout) {
  const ParallelConfig one;
  const RunConfig config = with_rule(small(gpt2()), "adafactor");
  expect_undisturbed(config, {shards(), replicas(), shards()});
  expect_undisturbed(config, {sharing(8), one, sharing_of_shards()});
}

TEST(Rules, EightBitStatesResumeInAnyLayout) {
  RunConfig config = with_8bit(small(gpt2()));
  config.model.width = 64;
  expect_undisturbed(config, {shards(), sharing_of_shards(), shards()}, kEdge);
}

TEST(Rules, MuonResumesInAnyLayout) {
  const ParallelConfig one;
  const auto in_f32 = [](ParallelConfig layout) { return with_payload(layout, DType::f32); };
  const RunConfig config = with_every_muon_option(small(llama()));
  expect_undisturbed(config, {in_f32(replicas()), in_f32(shards()), in_f32(replicas())});
  expect_undisturbed(config, {one, in_f32(replicas_of_shards()), in_f32(replicas()), one});
  expect_undisturbed(config, {in_f32(sharing_of_shards()), in_f32(shards()), in_f32(sharing_of_shards())});
}

}  // namespace
}  // namespace ingot

int main(int argc, char** argv) { return ingot::run_on_ranks(argc, argv); }
