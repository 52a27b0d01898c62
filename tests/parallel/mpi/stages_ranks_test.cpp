// Compares training with the model in stages (parallel.pp) with training on one rank, in cases that
// matrix_ranks_test does not cover.
#include <algorithm>
#include <functional>
#include <limits>
#include <string>

#include "ingot/infer/generate.h"
#include "ingot/memory/memory_check.h"
#include "tests/parallel/mpi/one_rank_curve.h"
#include "tests/reference/error_of.h"
#include "tests/train/gradients.h"

namespace ingot {
namespace {

constexpr PipelineKind kGpipe = PipelineKind::kGpipe, kOneFOneB = PipelineKind::kOneFOneB,
                       kInterleaved = PipelineKind::kInterleaved;

RunConfig tied_gpt2() { return for_stages(gpt2()); }
RunConfig untied_llama() {
  RunConfig c = for_stages(llama());
  c.model.is_tied = false;
  return c;
}
void expect_for_all_models(const ParallelConfig& parallel) {
  for (RunConfig config : {tied_gpt2(), untied_llama()}) {
    config.parallel = parallel;
    expect_one_rank_curve(config, kF32);
  }
}

TEST(Stages, StagesWithReplicasMatchOneRank) {
  if (world->size() < 4) GTEST_SKIP() << "has 4 ranks";
  expect_for_all_models(stages(2, kOneFOneB));
}

TEST(Stages, StagesWithShardsMatchOneRank) {
  if (world->size() < 4) GTEST_SKIP() << "has 4 ranks";
  ParallelConfig parallel = stages(2, kOneFOneB);
  std::swap(parallel.dp, parallel.fsdp);
  expect_for_all_models(parallel);
  parallel.schedule = kGpipe;
  expect_for_all_models(parallel);
  if (world->size() < 8) return;
  parallel = stages(2, kOneFOneB, 1, 2);
  std::swap(parallel.dp, parallel.fsdp);
  expect_for_all_models(parallel);
}

// Each rank chooses what its own micro-batches in flight keep, within the budget of a rank.
TEST(Stages, AutoKeepsWhatFitsTheBudgetOfEachRank) {
  if (world->size() == 1) GTEST_SKIP() << "one rank";
  for (const ParallelConfig& parallel : {stages(2, kOneFOneB), stages(2, kInterleaved, 2)}) {
    RunConfig config = untied_llama();
    Training alone(config);
    const std::vector<double> want = alone.losses(3);
    config.parallel = parallel;
    config.activations.policy = RecomputePolicy::kNone;
    Mesh mesh = Mesh::make(*world, mesh_shape(parallel));
    const auto activations = [&](Training& run) {
      return static_cast<double>(run.trainer.layout().executor->arenas().front()->capacity_bytes());
    };
    Training keeping(config, mesh);
    config.activations.policy = RecomputePolicy::kAuto;
    config.activations.budget_bytes = static_cast<int64_t>(0.7 * world->max(activations(keeping)));
    Training fitting(config, mesh);
    EXPECT_LE(activations(fitting), config.activations.budget_bytes);
    const std::vector<double> got = fitting.losses(3);
    for (size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(got[i], want[i], kF32 * want[i]) << i;
    config.activations.budget_bytes = 100 * config.activations.budget_bytes;
    Training roomy(config, mesh);
    EXPECT_EQ(activations(roomy), activations(keeping));
    config.activations.budget_bytes = 1000;
    EXPECT_THROW(Training(config, mesh), Error);
  }
}

// parallel.order moves groups to other ranks. Sums are taken in the groups' order, so no bit of a loss
// changes.
TEST(Stages, TheOrderOfTheMeshChangesNoBit) {
  if (world->size() < 4) GTEST_SKIP() << "has 4 ranks";
  RunConfig config = untied_llama();
  config.parallel = stages(2, kOneFOneB);
  std::vector<std::vector<double>> losses;
  for (MeshOrder order :
       {kMeshOrder, MeshOrder{MeshAxis::kStage, MeshAxis::kReplicate, MeshAxis::kShard, MeshAxis::kTensor}}) {
    config.parallel.order = order;
    Mesh mesh = Mesh::make(*world, mesh_shape(config.parallel));
    EXPECT_EQ(rank_at(mesh.shape, mesh.place), world->rank());
    Training shared(config, mesh);
    expect_planned_arenas(shared, config);
    losses.push_back(train(shared).losses);
  }
  EXPECT_EQ(losses[0], losses[1]);
}

// Evaluation uses moving averages instead of the weights. A rank keeps the averages of its units. The z-loss
// and the smoothed labels set the checked cross-entropy and objective apart.
TEST(Stages, AveragesAccumulationAndActivationCheckpointingMatchOneRank) {
  RunConfig config = untied_llama();
  config.optimizer.ema = 0.9;
  config.activations.policy = RecomputePolicy::kBlock;
  config.head.z_loss = 1e-3;
  config.head.label_smoothing = 0.05;
  config.parallel = stages(4, kOneFOneB);
  expect_one_rank_curve(config, kF32);
}

// Tests rules that need whole matrices or sums over whole parameters: with one rank per stage or replicas
// of it, with tensor parallelism, and with shards. Both ends of the pipeline make the same update of the
// tied table.
TEST(Stages, RulesThatNeedWholeMatricesMatchOneRank) {
  std::vector<ParallelConfig> layouts{stages(4, kOneFOneB)};
  if (world->size() >= 4) {
    layouts.push_back(stages(2, kOneFOneB, 1, 2));
    layouts.push_back(stages(2, kOneFOneB));
    std::swap(layouts.back().dp, layouts.back().fsdp);
  }
  for (ParallelConfig& layout : layouts) {
    RunConfig config = tied_gpt2();
    layout.muon_payload = DType::f32;
    config.parallel = layout;
    expect_one_rank_curve(with_muon(config, DType::f32), kF32);
    expect_one_rank_curve(with_8bit(config), kEdge);
    expect_one_rank_curve(with_rule(config, "adafactor"), kF32);
  }
}

double bytes_of(const Training& training, const std::string& name) {
  double used = 0;
  for (const Trainer::ArenaUse& use : training.trainer.arenas())
    if (use.name == name) used = static_cast<double>(use.bytes);
  return used;
}

// The memory that one process plans for a rank of any layout equals what that rank takes. (For the owners
// of matrices and for stages the plan is only close, because they depend on what all ranks know together.)
TEST(Memory, ThePlanEqualsTheBytesOfEveryRank) {
  std::vector<ParallelConfig> layouts = {replicas(), shards(), shards(true)};
  layouts.push_back(replicas());
  layouts.back().payload = DType::bf16;
  layouts.back().has_error_feedback = true;
  if (world->size() % 2 == 0) layouts.push_back(sharing(2));
  for (const ParallelConfig& layout : layouts)
    for (const RunConfig& base : {untied_llama(), with_8bit(tied_gpt2())}) {
      RunConfig config = base;
      config.parallel = layout;
      Mesh mesh = Mesh::make(*world, mesh_shape(config.parallel));
      const Training shared(config, mesh);
      const MemoryPlan plan = plan_memory(config, mesh.shape, world->rank());
      const std::vector<Trainer::ArenaUse> arenas = shared.trainer.arenas();
      for (size_t i = 0; i < arenas.size(); ++i) {
        EXPECT_EQ(plan.items[i].name, arenas[i].name) << layout.to_string();
        EXPECT_EQ(plan.items[i].bytes, arenas[i].bytes) << arenas[i].name << " of " << layout.to_string();
      }
    }
}

// The check adds up what the ranks of one machine take, and refuses all of them together.
TEST(Memory, RanksOfOneMachineShareItsMemory) {
  RunConfig config = untied_llama();
  config.parallel = replicas();
  Mesh mesh = Mesh::make(*world, mesh_shape(config.parallel));
  const uint64_t each = plan_memory(config, mesh.shape, world->rank()).host_bytes();
  const auto ranks = static_cast<uint64_t>(world->size());
  MemoryLimits limits{.host = {.bytes = ranks * each, .source = "the test"},
                      .device = {},
                      .machine = "here",
                      .device_name = {}};
  EXPECT_EQ(check_memory(config, mesh, limits), "");
  limits.host.bytes -= 1;
  const std::string error = error_of([&] { check_memory(config, mesh, limits); }, ErrorKind::kMemory);
  EXPECT_NE(error, "no error");
  if (ranks > 1) {
    EXPECT_THAT(error, testing::HasSubstr(fmt::format("({} ranks together)", ranks)));
  }
  limits.host.bytes = each;
  limits.machine = fmt::format("machine {}", world->rank());
  EXPECT_EQ(check_memory(config, mesh, limits), "");
  // Only one rank has too little memory, but all ranks fail.
  if (world->rank() == world->size() - 1) limits.host.bytes = each - 1;
  EXPECT_THROW(check_memory(config, mesh, limits), Error);
}

// A replica has whole parameters on any number of ranks, in bf16 with the copies that layers read.
TEST(Memory, AReplicaTakesTheBytesOfOneRank) {
  for (const DType compute : {DType::f32, DType::bf16}) {
    RunConfig config = untied_llama();
    config.model.width = 256;
    config.precision.compute = compute;
    config.parallel = replicas();
    Mesh mesh = Mesh::make(*world, mesh_shape(config.parallel));
    const Training shared(config, mesh);
    double P = 0;
    for (const ParamSpec& spec : shared.trainer.layout().model->params().specs())
      P += static_cast<double>(spec.elements());
    const double weight_bytes = compute == DType::f32 ? 4 : 4 + 2;
    for (const auto& [name, each] :
         {std::pair{"parameters", weight_bytes}, {"gradients", 4.0}, {"optimizer", 8.0}})
      EXPECT_NEAR(bytes_of(shared, name), each * P, 0.01 * each * P) << name;
  }
}

// A rank holds masters, gradients and state of its own units only.
TEST(Memory, ARankTakesTheBytesOfItsUnits) {
  RunConfig config = untied_llama();
  config.model.width = 256;
  config.parallel = stages(world->size(), kOneFOneB);
  Mesh mesh = Mesh::make(*world, mesh_shape(config.parallel));
  Training shared(config, mesh);
  double own = 0, all = 0;
  for (const ParamShard& shard : shared.trainer.params().shards()) {
    own += static_cast<double>(shard.elements());
    all += static_cast<double>(shared.trainer.layout().model->params()[shard.id].elements());
  }
  for (const auto& [name, each] : {std::pair{"parameters", 4.0}, {"gradients", 4.0}, {"optimizer", 8.0}})
    EXPECT_NEAR(bytes_of(shared, name), each * own, 0.01 * each * all / world->size()) << name;
  EXPECT_EQ(world->sum(own), all);
}

// All ranks sample the text that one rank samples. In the second model, no operation before the head has
// asked for the head's weights: its norm has none.
TEST(Stages, GenerateTheTextOfOneRank) {
  const auto text = [](Training& run) {
    Generator generator(
        *run.trainer.layout().model, run.trainer.params(), *run.trainer.layout().region,
        *run.trainer.layout().stream, {.slots = 2},
        [&](LayerContext& ctx, const InferBatch& batch, const std::vector<KvCache>& caches,
            const Tensor& logits) { run.trainer.layout().executor->infer(ctx, batch, caches, logits); });
    std::vector<TokenId> tokens;
    const std::vector<Generator::Prompt> prompts{{{1, 2, 3, 4, 5, 6, 7}, 7}, {{8, 9}, 8}};
    generator.run(prompts, 40, {.temperature = 0.8f, .top_k = 0, .top_p = 1}, {},
                  [&](size_t prompt, TokenId id) {
                    tokens.push_back(static_cast<TokenId>(prompt));
                    tokens.push_back(id);
                    return true;
                  });
    return tokens;
  };
  RunConfig weightless = untied_llama();
  weightless.model.norm = NormKind::kRmsNormWeightless;
  for (RunConfig config : {tied_gpt2(), weightless}) {
    Training alone(config);
    const std::vector<TokenId> want = text(alone);
    for (const ParallelConfig& parallel : {stages(8, kOneFOneB), stages(2, kInterleaved, 2, 2), shards()}) {
      config.parallel = parallel;
      Mesh mesh = Mesh::make(*world, mesh_shape(config.parallel));
      Training shared(config, mesh);
      EXPECT_EQ(text(shared), want) << parallel.to_string();
    }
  }
}

// The statistics cover the whole of every parameter, on whatever ranks it lies, and count the tied
// table once.
TEST(Stages, StatisticsOfParametersEqualThoseOfOneRank) {
  RunConfig config = tied_gpt2();
  Training alone(config);
  config.parallel = stages(4, kOneFOneB);
  Mesh mesh = Mesh::make(*world, mesh_shape(config.parallel));
  Training shared(config, mesh);
  alone.trainer.step(alone.loader, {.lr = 1e-3, .momentum = {}, .wants_stats = true});
  shared.trainer.step(shared.loader, {.lr = 1e-3, .momentum = {}, .wants_stats = true});
  const std::vector<ParamStats> want = alone.trainer.stats(), got = shared.trainer.stats();
  ASSERT_EQ(got.size(), want.size());
  for (size_t p = 0; p < want.size(); ++p) {
    EXPECT_NEAR(got[p].weight_norm, want[p].weight_norm, 1e-9 * want[p].weight_norm) << want[p].name;
    EXPECT_NEAR(got[p].grad_norm, want[p].grad_norm, 1e-5 * want[p].grad_norm) << want[p].name;
  }
}

// Computes the gradients of a step in a pipeline of up to `pp` stages, in which the shards of one parameter
// are spoiled before, and returns the fault that this rank reports.
std::string non_finite_text(int pp, const std::string& name,
                            const std::function<void(const ParamShard&)>& spoil) {
  RunConfig config = untied_llama();
  config.parallel = stages(pp, kOneFOneB);
  Mesh mesh = Mesh::make(*world, mesh_shape(config.parallel));
  Training shared(config, mesh);
  const ParamList& list = shared.trainer.layout().model->params();
  for (const ParamShard& shard : shared.trainer.params().shards())
    if (list[shard.id].name == name && shard.elements() > 0) spoil(shard);
  const StepResult result = gradients(shared.trainer, shared.loader, config.train.grad_accum);
  shared.trainer.discard();
  return result.non_finite ? result.non_finite->text() : "finite";
}

// All ranks report the same error and the same place, no matter which rank has the NaN weight.
TEST(Stages, ANonFiniteValueInOneStageIsReportedByAll) {
  const auto spoil = [](const ParamShard& shard) {
    shard.w.as<float>()[5] = std::numeric_limits<float>::quiet_NaN();
  };
  EXPECT_EQ(non_finite_text(8, "blocks.4.mlp.down.weight", spoil),
            "the loss is not finite in micro-batch 0: block 4, weight blocks.4.mlp.down.weight");
}

// Only the gradient is infinite; the stage that holds it names it.
TEST(Stages, ANonFiniteGradientIsTracedToItsStage) {
  const auto spoil = [](const ParamShard& shard) {
    shard.grad.as<float>()[3] = std::numeric_limits<float>::infinity();
  };
  EXPECT_EQ(non_finite_text(4, "blocks.2.mlp.norm.weight", spoil),
            "the gradient is not finite in the sum of the micro-batches: block 2, gradient of "
            "blocks.2.mlp.norm.weight");
}

TEST(Stages, LayoutsThatDoNotFitAreRefused) {
  if (world->size() == 1) GTEST_SKIP() << "one rank";
  const auto refusal = [](RunConfig config) -> std::string {
    return error_of([&] {
      config.validate();
      check_layout(config, world->size());
    });
  };
  RunConfig config = untied_llama();
  config.parallel = stages(2, kInterleaved, 2);
  config.parallel.dp = world->size() / 2;
  EXPECT_EQ(refusal(config), "no error");
  config.parallel.chunks = 5;
  EXPECT_NE(refusal(config).find("must lie in 1 .. 8"), std::string::npos) << refusal(config);
  config.parallel.chunks = 1;
  EXPECT_NE(refusal(config).find("parallel.chunks must be at least 2"), std::string::npos) << refusal(config);
}

}  // namespace
}  // namespace ingot

int main(int argc, char** argv) { return ingot::run_on_ranks(argc, argv); }
