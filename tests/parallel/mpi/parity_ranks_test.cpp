// Training on several ranks against the same training on one: every layout has the one-rank loss curve.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "ingot/comm/mpi_job.h"
#include "ingot/core/philox.h"
#include "ingot/parallel/mesh_parts.h"
#include "ingot/train/trainer.h"

namespace ingot {
namespace {

Communicator* world = nullptr;

constexpr int kSteps = 30;
constexpr size_t kTokens = 6000, kPlace = 1234;
constexpr uint16_t kRare = 120;  // a token that occurs once

// Tokens below 100 that follow each other half of the time, so that there is something to learn.
TokenSource chained_tokens() {
  std::vector<uint16_t> tokens(kTokens);
  const RandomKey key{.seed = 5, .purpose = Purpose::kSample, .stream = 0, .step = 0};
  for (size_t i = 0; i < tokens.size(); ++i) {
    const uint32_t word = random_word(key, i);
    const bool follows = i > 0 && word % 2 == 0;
    tokens[i] = static_cast<uint16_t>(follows ? (tokens[i - 1] * 7 + 3) % 100 : word / 2 % 100);
  }
  tokens[kPlace] = kRare;
  TokenSource source;
  source.add(std::move(tokens));
  return source;
}

RunConfig llama() {
  RunConfig c;
  c.model = {
      .layers = 2, .heads = 4, .kv_heads = 2, .width = 32, .context = 16, .vocab = 128, .dropout = 0.1};
  c.train.batch_size = 4;
  c.train.grad_accum = 4;
  c.optimizer.lr = 2e-3;
  return c;
}

RunConfig gpt2() {
  RunConfig c = llama();
  c.model.kv_heads = 4;
  c.model.norm = NormKind::kLayerNorm;
  c.model.positions = PositionKind::kLearned;
  c.model.mlp = MlpKind::kGeluTanh;
  c.model.has_bias = true;
  c.model.is_tied = true;
  c.model.dropout = 0;
  return c;
}

RunConfig with_muon(RunConfig c, DType iteration) {
  GroupConfig matrices{.roles = {ParamRole::kMatrix}};
  matrices.rule.kind = OptimizerKind::kMuon;
  matrices.rule.newton_schulz_dtype = iteration;
  matrices.lr = 0.01;
  c.optimizer.groups = {matrices};
  return c;
}

RunConfig with_8bit(RunConfig c) {
  c.optimizer.rule.kind = OptimizerKind::kAdamW8bit;
  return c;
}

// A trainer on those tokens, alone or with the others.
struct Training {
  explicit Training(const RunConfig& c) : Training(c, std::make_unique<TrainerParts>()) {}
  Training(const RunConfig& c, std::unique_ptr<TrainerParts> parts)
      : config(c),
        trainer(config, std::move(parts)),
        loader(source, sampler,
               {.shape = trainer.batch_shape(),
                .readers = trainer.share().ranks,
                .reader = trainer.share().rank,
                .ring = 2}) {
    trainer.initialise();
  }
  std::vector<double> losses() {
    std::vector<double> all;
    for (int step = 0; step < kSteps; ++step)
      all.push_back(trainer.step(loader, {.lr = config.optimizer.lr}).loss);
    return all;
  }

  RunConfig config;
  TokenSource source = chained_tokens();
  Trainer trainer;
  Sampler sampler{SampleOrder::kRandom, 1, kTokens, config.model.context};
  Loader loader;
};

std::vector<float> weights(Trainer& trainer) {
  std::vector<float> all;
  trainer.params().expand_masters();
  for (size_t p = 0; p < trainer.params().list().specs().size(); ++p) {
    const Tensor w = trainer.params().master(static_cast<int>(p));
    all.insert(all.end(), w.as<float>(), w.as<float>() + w.elements());
  }
  trainer.params().refresh_compute(trainer.stream());
  return all;
}

void expect_equal_on_all_ranks(std::vector<float> values) {
  std::vector<float> lowest = values;
  const Shape shape{std::ssize(values)};
  world->all_reduce("lowest", Tensor(lowest.data(), DType::f32, shape), ReduceOp::kMin);
  world->all_reduce("highest", Tensor(values.data(), DType::f32, shape), ReduceOp::kMax);
  EXPECT_EQ(lowest, values);
}

// What all of a layout's runs must show. tolerance: relative, of each of the losses.
void expect_one_rank_curve(const RunConfig& config, double tolerance) {
  Mesh mesh = Mesh::make(*world, mesh_shape(config.parallel));
  Training shared(config, std::make_unique<MeshParts>(*world, mesh));
  RunConfig one = config;
  one.parallel = {};
  Training alone(one);
  EXPECT_EQ(weights(shared.trainer), weights(alone.trainer)) << "initial weights";
  const std::vector<double> got = shared.losses(), want = alone.losses();
  EXPECT_LT(want.back(), want.front() - 0.1) << "nothing was learnt";
  for (size_t i = 0; i < want.size(); ++i)
    ASSERT_NEAR(got[i], want[i], tolerance * want[i]) << config.parallel.to_string() << ", step " << i;
  EXPECT_EQ(shared.loader.position(), alone.loader.position());
  const EvalResult got_eval = shared.trainer.evaluate(shared.source, 3000);
  const EvalResult want_eval = alone.trainer.evaluate(alone.source, 3000);
  EXPECT_EQ(got_eval.tokens, want_eval.tokens);
  EXPECT_NEAR(got_eval.loss, want_eval.loss, tolerance * want_eval.loss);
  expect_equal_on_all_ranks(weights(shared.trainer));
}

ParallelConfig replicas() {
  ParallelConfig c;
  c.dp = world->size();
  return c;
}

// f32: gradients are the same sums in another order. The order moves each by some 2^-24 of its size, and the
// losses of 30 steps by less than 1e-6.
constexpr double kF32 = 1e-6;
// Rules that keep 8-bit states or iterate in bf16 round at every step, and the order of a sum decides on
// which side. Noise of 2^-9 in every update moves what the loss has fallen by, a tenth of it, by 2^-9 at the
// most.
constexpr double kEdge = 0x1p-12;
// bf16 activations are computed row by row, so they do not depend on the layout; the gradients of a
// micro-batch are summed in f32 inside its products, and 2^-9 of a weight's copy flips where that sum does.
constexpr double kBf16 = 2 * 0x1p-9;

TEST(Parity, ReplicasHaveTheLossesOfOneRank) {
  for (RunConfig config : {llama(), gpt2(), with_muon(llama(), DType::f32), with_muon(gpt2(), DType::f32)}) {
    config.parallel = replicas();
    expect_one_rank_curve(config, kF32);
  }
}

TEST(Parity, ReplicasWithRulesThatRound) {
  for (RunConfig config : {with_muon(llama(), DType::bf16), with_muon(gpt2(), DType::bf16),
                           with_8bit(llama()), with_8bit(gpt2())}) {
    config.parallel = replicas();
    expect_one_rank_curve(config, kEdge);
  }
}

TEST(Parity, ReplicasInBf16) {
  for (const Masters masters : {Masters::kF32, Masters::kNone, Masters::kTail}) {
    RunConfig config = llama();
    config.precision = {.compute = DType::bf16, .master = masters};
    config.parallel = replicas();
    expect_one_rank_curve(config, kBf16);
  }
}

// Each rank rounds its part of a gradient by up to 2^-9 of it; over the elements of a gradient and the steps
// those roundings add up like noise, and a loss moves by a small part of that.
TEST(Parity, CompressedGradients) {
  for (const bool has_feedback : {false, true}) {
    RunConfig config = gpt2();
    config.parallel = replicas();
    config.parallel.payload = DType::bf16;
    config.parallel.has_error_feedback = has_feedback;
    expect_one_rank_curve(config, 0x1p-9);
  }
}

TEST(Parity, EverySampleIsSeenOnceAndInTheOneRankOrder) {
  RunConfig config = llama();
  config.parallel = replicas();
  Mesh mesh = Mesh::make(*world, mesh_shape(config.parallel));
  Training shared(config, std::make_unique<MeshParts>(*world, mesh));
  const DataShare& share = shared.trainer.share();
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

// One rank alone meets a weight that is not a number; all end the step with its report.
TEST(Parity, WhatOneRankFindsNotFiniteAllReport) {
  RunConfig config = llama();
  config.parallel = replicas();
  Mesh mesh = Mesh::make(*world, mesh_shape(config.parallel));
  Training shared(config, std::make_unique<MeshParts>(*world, mesh));
  shared.trainer.params().master(0).as<float>()[kRare * 32 + 5] = std::numeric_limits<float>::quiet_NaN();
  StepResult result;
  for (int step = 0; step < 200 && !result.non_finite; ++step) {
    result = shared.trainer.gradients(shared.loader, config.train.grad_accum);
    shared.trainer.discard();
  }
  ASSERT_TRUE(result.non_finite);
  std::string text = result.non_finite->text(), lead = text;
  CommReducer(*world).broadcast(lead, 0);
  EXPECT_EQ(text, lead);
  EXPECT_NE(text.find("the loss is not finite in micro-batch"), std::string::npos) << text;
  EXPECT_NE(text.find("weight embedding.weight"), std::string::npos) << text;
}

// The history of delayed scaling is one for all: the next step's scales are.
TEST(Parity, DelayedScalesAreThoseOfAllRanks) {
  RunConfig config = gpt2();
  config.precision.compute = DType::bf16;
  config.precision.fp8 = {.recipe = Fp8Recipe::kDelayed, .amax_history = 4};
  config.parallel = replicas();
  Mesh mesh = Mesh::make(*world, mesh_shape(config.parallel));
  Training shared(config, std::make_unique<MeshParts>(*world, mesh));
  for (int step = 0; step < 5; ++step) shared.trainer.step(shared.loader, {.lr = 1e-3});
  expect_equal_on_all_ranks(shared.trainer.fp8().amaxes());
}

}  // namespace
}  // namespace ingot

int main(int argc, char** argv) {
  using namespace ingot;
  MpiJob job({.timeout_s = 250, .message_delay_s = 0, .verifies = true});
  world = &job.world();
  if (world->rank() > 0) GTEST_FLAG_SET(brief, true);
  testing::InitGoogleTest(&argc, argv);
  std::vector<int64_t> failed = {RUN_ALL_TESTS()};
  if (failed[0]) std::fprintf(stderr, "rank %d has failed tests\n", world->rank());
  world->all_reduce("failed", Tensor(failed.data(), DType::i64, {1}), ReduceOp::kMax);
  return static_cast<int>(failed[0]);
}
