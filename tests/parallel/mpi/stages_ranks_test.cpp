// Training with the model in stages (parallel.pp) against the same training on one rank.
#include <algorithm>
#include <limits>
#include <map>

#include "ingot/train/generate.h"
#include "tests/parallel/mpi/ranks_fixture.h"

namespace ingot {
namespace {

constexpr PipelineKind kGpipe = PipelineKind::kGpipe, kOneFOneB = PipelineKind::kOneFOneB,
                       kInterleaved = PipelineKind::kInterleaved;

// The same losses with a tied table's gradients in another order, which moves each by some 2^-24 of its size.
constexpr double kF32 = 1e-6;

struct Curve {
  std::vector<float> initial;
  std::vector<double> losses, top1, norms, raw;
  EvalResult eval;
  int64_t position = 0;
};

Curve train(Training& run) {
  Curve curve;
  curve.initial = weights(run.trainer);
  for (int step = 0; step < kSteps; ++step) {
    const StepResult result = run.trainer.step(run.loader, {.lr = run.config.optimizer.lr});
    curve.losses.push_back(result.loss);
    curve.top1.push_back(result.top1);
    curve.norms.push_back(result.grad_norm);
    if (result.raw.tokens > 0) curve.raw.push_back(result.raw.ce);
  }
  curve.eval = run.trainer.evaluate(run.source, 3000);
  curve.position = run.loader.position();
  return curve;
}

template <typename T>
void from_rank_0(std::vector<T>& values) {
  int64_t count = std::ssize(values);
  world->broadcast("count", Tensor(&count, DType::i64, {1}), 0);
  values.resize(static_cast<size_t>(count));
  world->broadcast("values", Tensor(values.data(), sizeof(T) == 8 ? DType::i64 : DType::i32, {count}), 0);
}

// Of the one rank that has everything: rank 0 computes it, once for each name.
const Curve& one_rank_curve(const std::string& name, RunConfig config) {
  static std::map<std::string, Curve> curves;
  const auto [place, is_new] = curves.try_emplace(name);
  Curve& curve = place->second;
  if (!is_new) return curve;
  config.parallel = {};
  std::vector<double> eval(2);
  if (world->rank() == 0) {
    Training alone(config);
    curve = train(alone);
    eval = {curve.eval.loss, static_cast<double>(curve.eval.tokens)};
  }
  from_rank_0(curve.initial);
  for (std::vector<double>* values : {&curve.losses, &curve.top1, &curve.norms, &curve.raw, &eval})
    from_rank_0(*values);
  curve.eval.loss = eval[0];
  curve.eval.tokens = static_cast<int64_t>(eval[1]);
  curve.position = kSteps * config.train.batch_size * config.train.grad_accum;
  return curve;
}

void expect_one_rank_curve(const std::string& name, const RunConfig& config, double tolerance = kF32) {
  const Curve& want = one_rank_curve(name, config);
  EXPECT_LT(want.losses.back(), want.losses.front() - 0.1) << "nothing was learnt";
  Mesh mesh = Mesh::make(*world, mesh_shape(config.parallel));
  Training shared(config, mesh);
  const Curve got = train(shared);
  const std::string what = name + ", " + config.parallel.to_string();
  EXPECT_EQ(got.initial, want.initial) << what;
  for (size_t i = 0; i < want.losses.size(); ++i) {
    ASSERT_NEAR(got.losses[i], want.losses[i], tolerance * want.losses[i]) << what << ", step " << i;
    ASSERT_NEAR(got.top1[i], want.top1[i], 4.0 / 256) << what << ", step " << i;
    ASSERT_NEAR(got.norms[i], want.norms[i], 100 * tolerance * want.norms[i]) << what << ", step " << i;
  }
  ASSERT_EQ(got.raw.size(), want.raw.size());
  // Checked tokens are of a rank's own samples; rank 0 has those of one rank unless others share its rows.
  if (config.parallel.dp * config.parallel.fsdp == 1) {
    for (size_t i = 0; i < want.raw.size(); ++i)
      EXPECT_NEAR(got.raw[i], want.raw[i], tolerance * want.raw[i]) << what;
  }
  EXPECT_EQ(got.position, want.position);
  EXPECT_EQ(got.eval.tokens, want.eval.tokens);
  EXPECT_NEAR(got.eval.loss, want.eval.loss, tolerance * want.eval.loss) << what;
}

RunConfig tied_gpt2() { return for_stages(gpt2()); }
RunConfig untied_llama() {
  RunConfig c = for_stages(llama());
  c.model.is_tied = false;
  return c;
}
const std::map<std::string, RunConfig>& models() {
  static const std::map<std::string, RunConfig> all = {{"gpt2", tied_gpt2()}, {"llama", untied_llama()}};
  return all;
}

void expect_for_all_models(const ParallelConfig& parallel) {
  for (auto [name, config] : models()) {
    config.parallel = parallel;
    expect_one_rank_curve(name, config);
  }
}

TEST(Stages, EveryScheduleHasTheLossesOfOneRank) {
  expect_for_all_models(stages(8, kGpipe));
  expect_for_all_models(stages(8, kOneFOneB));
  if (world->size() >= 2) expect_for_all_models(stages(world->size() == 2 ? 2 : 4, kInterleaved, 2));
}

TEST(Stages, WithReplicasOfEach) {
  if (world->size() < 4) return;
  expect_for_all_models(stages(2, kOneFOneB));
}

TEST(Stages, WithSharedProducts) {
  if (world->size() < 4) return;
  expect_for_all_models(stages(world->size() / 2, kOneFOneB, 1, 2));
  expect_for_all_models(stages(2, kInterleaved, 2, 2));  // on 8 ranks with replicas too
}

TEST(Stages, WithShards) {
  if (world->size() < 4) return;
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

// Moving averages of the weights stand in for them in evaluation; a rank keeps those of its units.
TEST(Stages, WithAveragesAccumulationAndActivationCheckpointing) {
  RunConfig config = untied_llama();
  config.optimizer.ema = 0.9;
  config.activations.policy = RecomputePolicy::kBlock;
  config.parallel = stages(4, kOneFOneB);
  expect_one_rank_curve("averages", config);
}

// Rules that need whole matrices, or sums over whole parameters: alone in each stage, with replicas, and
// where the ranks of a stage put them together. Of the tied table, both ends of the pipeline make the same
// update.
TEST(Stages, WithRulesThatNeedWholeMatrices) {
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
    expect_one_rank_curve("muon", with_muon(config, DType::f32));
    expect_one_rank_curve("8-bit", with_8bit(config), 0x1p-12);
    expect_one_rank_curve("adafactor", with_rule(config, OptimizerKind::kAdafactor));
  }
}

// A pipeline alone adds gradients up in the order of one rank; replicas of it do not, and a bf16 copy of a
// weight flips by 2^-9 where the sum does.
TEST(Stages, InBf16) {
  RunConfig config = untied_llama();
  config.precision.compute = DType::bf16;
  config.parallel = stages(4, kOneFOneB);
  expect_one_rank_curve("bf16", config, config.parallel.dp == 1 ? kF32 : 2 * 0x1p-9);
}

double bytes_of(const Training& training, const std::string& name) {
  double used = 0;
  for (const Trainer::ArenaUse& use : training.trainer.arenas())
    if (use.name == name) used = static_cast<double>(use.bytes);
  return used;
}

// Replicas are whole, on any number of ranks; in bf16 with the copies that layers read.
TEST(Memory, ReplicasTakeWhatOneRankTakes) {
  for (const DType compute : {DType::f32, DType::bf16}) {
    RunConfig config = untied_llama();
    config.model.width = 256;
    config.precision.compute = compute;
    config.parallel = replicas();
    Mesh mesh = Mesh::make(*world, mesh_shape(config.parallel));
    const Training shared(config, mesh);
    double P = 0;
    for (const ParamSpec& spec : shared.trainer.model().params().specs())
      P += static_cast<double>(spec.elements());
    const double weight_bytes = compute == DType::f32 ? 4 : 4 + 2;
    for (const auto& [name, each] :
         {std::pair{"parameters", weight_bytes}, {"gradients", 4.0}, {"optimizer", 8.0}})
      EXPECT_NEAR(bytes_of(shared, name), each * P, 0.01 * each * P) << name;
  }
}

// A rank has the bytes of its own units, of masters, gradients and state.
TEST(Memory, ARankTakesTheBytesOfItsUnits) {
  RunConfig config = untied_llama();
  config.model.width = 256;
  config.parallel = stages(world->size(), kOneFOneB);
  Mesh mesh = Mesh::make(*world, mesh_shape(config.parallel));
  Training shared(config, mesh);
  double own = 0, all = 0;
  for (const ParamPiece& piece : shared.trainer.params().pieces()) {
    own += static_cast<double>(piece.elements());
    all += static_cast<double>(shared.trainer.model().params()[piece.id].elements());
  }
  for (const auto& [name, each] : {std::pair{"parameters", 4.0}, {"gradients", 4.0}, {"optimizer", 8.0}})
    EXPECT_NEAR(bytes_of(shared, name), each * own, 0.01 * each * all / world->size()) << name;
  std::vector<double> sum{own};
  CommReducer(*world).sum(sum);
  EXPECT_EQ(sum[0], all);
}

// What is sampled is the text that one rank samples.
TEST(Stages, GenerateTheTextOfOneRank) {
  RunConfig config = tied_gpt2();
  Training alone(config);
  const auto text = [](Training& run) {
    Generator generator(run.trainer.model(), run.trainer.params(), run.trainer.region(),
                        run.trainer.stages());
    std::vector<TokenId> tokens;
    const std::vector<TokenId> prompt{1, 2, 3, 4, 5, 6, 7};
    generator.run(prompt, 40, {.temperature = 0.8f, .top_k = 0, .top_p = 1}, 7, std::nullopt,
                  [&](TokenId id) {
                    tokens.push_back(id);
                    return true;
                  });
    return tokens;
  };
  const std::vector<TokenId> want = text(alone);
  for (const ParallelConfig& parallel : {stages(8, kOneFOneB), stages(2, kInterleaved, 2, 2)}) {
    config.parallel = parallel;
    Mesh mesh = Mesh::make(*world, mesh_shape(config.parallel));
    Training shared(config, mesh);
    EXPECT_EQ(text(shared), want) << parallel.to_string();
  }
}

// Sums over the whole of every parameter, wherever it lies; the tied table is one, not two.
TEST(Stages, StatisticsOfParametersAreThoseOfOneRank) {
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

// Which rank has the weight that is not a number does not matter: all say the same, and where.
TEST(Stages, WhatOneStageFindsNotFiniteAllReport) {
  RunConfig config = untied_llama();
  config.parallel = stages(8, kOneFOneB);
  Mesh mesh = Mesh::make(*world, mesh_shape(config.parallel));
  Training shared(config, mesh);
  const ParamList& list = shared.trainer.model().params();
  int id = 0;
  while (list[id].name != "blocks.4.mlp.down.weight") ++id;
  for (const ParamPiece& piece : shared.trainer.params().pieces())
    if (piece.id == id && piece.elements() > 0)
      piece.w.as<float>()[5] = std::numeric_limits<float>::quiet_NaN();
  const StepResult result = shared.trainer.gradients(shared.loader, config.train.grad_accum);
  shared.trainer.discard();
  ASSERT_TRUE(result.non_finite);
  EXPECT_EQ(result.non_finite->text(),
            "the loss is not finite in micro-batch 0: block 4, weight blocks.4.mlp.down.weight");
}

// Backward alone goes wrong: the gradient is named by the stage in which it did.
TEST(Stages, AGradientThatIsNotFiniteIsFoundInItsStage) {
  RunConfig config = untied_llama();
  config.optimizer.lr = 1e-3;
  config.parallel = stages(4, kOneFOneB);
  Mesh mesh = Mesh::make(*world, mesh_shape(config.parallel));
  Training shared(config, mesh);
  const ParamList& list = shared.trainer.model().params();
  int id = 0;
  while (list[id].name != "blocks.2.mlp.down.weight") ++id;
  for (const ParamPiece& piece : shared.trainer.params().pieces())
    if (piece.id == id && piece.elements() > 0)
      piece.grad.as<float>()[3] = std::numeric_limits<float>::infinity();
  const StepResult result = shared.trainer.gradients(shared.loader, config.train.grad_accum);
  shared.trainer.discard();
  ASSERT_TRUE(result.non_finite);
  EXPECT_EQ(result.non_finite->text(),
            "the gradient is not finite in the sum of the micro-batches: block 2, gradient of "
            "blocks.2.mlp.down.weight");
}

TEST(Stages, WhatDoesNotFitIsRefused) {
  if (world->size() < 2) return;
  const auto refusal = [](RunConfig config) -> std::string {
    try {
      config.validate();
      check_layout(config, world->size());
    } catch (const Error& error) {
      return error.what();
    }
    return "accepted";
  };
  RunConfig config = untied_llama();
  config.parallel = stages(2, kInterleaved, 2);
  config.parallel.dp = world->size() / 2;
  EXPECT_EQ(refusal(config), "accepted");
  config.parallel.chunks = 5;
  EXPECT_NE(refusal(config).find("must lie in 1 .. 8"), std::string::npos) << refusal(config);
  config.parallel.chunks = 1;
  EXPECT_NE(refusal(config).find("parallel.chunks must be at least 2"), std::string::npos) << refusal(config);
  config = untied_llama();
  config.parallel = stages(2, kOneFOneB);
  config.activations = {.policy = RecomputePolicy::kAuto, .budget_bytes = 1 << 20};
  EXPECT_NE(refusal(config).find("activations.policy"), std::string::npos) << refusal(config);
}

}  // namespace
}  // namespace ingot

int main(int argc, char** argv) { return ingot::run_on_ranks(argc, argv); }
