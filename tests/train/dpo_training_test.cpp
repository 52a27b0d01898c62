// Training on pairs of answers (dpo.beta).
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <optional>

#include "ingot/data/chat/chat_data.h"
#include "tests/train/small_training.h"

namespace ingot {
namespace {

// A pair whose answers have a common prompt of 4 tokens.
ChatTokens pair_of(TokenId first, size_t chosen, size_t rejected) {
  ChatTokens both;
  both.rejected_at = 4 + chosen;
  const auto add = [&](TokenId token, bool is_target) {
    both.ids.push_back(token % 61);
    both.is_target.push_back(is_target);
  };
  for (const bool is_chosen : {true, false}) {
    for (TokenId i = 0; i < 4; ++i) add(first + 3 * i, false);
    for (TokenId i = 0; i < (is_chosen ? chosen : rejected); ++i)
      add(first * 5 + i * (is_chosen ? 7 : 11) + (is_chosen ? 1 : 30), true);
  }
  return both;
}

struct DpoTraining {
  static constexpr int64_t kContext = 48;

  explicit DpoTraining(std::vector<std::string> keys) : source(make_pairs()) {
    for (const char* key : {"data.document_mask=true", "model.positions=rope", "model.layers=2",
                            "model.context=48", "dpo.beta=0.2", "model.init_std=0.2"})
      keys.insert(keys.begin(), key);
    config = small_config(keys);
    trainer = std::make_unique<Trainer>(config, parallelize(config));
    sampler.emplace(SampleOrder::kEpochs, 1,
                    std::vector<Sampler::Source>{{.tokens = source.tokens(), .is_packed = true}}, kContext);
    loader = std::make_unique<Loader>(source, *sampler,
                                      LoaderConfig{.shape = trainer->layout().batch_shape, .prefetch = 1});
    trainer->initialise();
  }
  static TokenSource make_pairs() {
    std::vector<ChatTokens> pairs;
    for (TokenId i = 0; i < 8; ++i) pairs.push_back(pair_of(i, 3 + i % 4, 9 - i));
    return pack(pairs, kContext, 61);
  }

  void set_references(const std::vector<double>& log_p) {
    source.references()->assign(log_p.begin(), log_p.end());
  }
  std::vector<double> scores() { return trainer->score_documents(source); }
  // References that make the weights of pairs differ.
  std::vector<double> uneven_references() {
    std::vector<double> log_p = scores();
    for (size_t i = 0; i < log_p.size(); ++i) log_p[i] += static_cast<double>(i * 7 % 13) - 6;
    return log_p;
  }
  // Adds h times the gradient to the weights.
  void move(double h) {
    for (const ParamShard& shard : trainer->params().shards())
      for (int64_t i = 0; i < shard.elements(); ++i)
        shard.w.as<float>()[i] += static_cast<float>(h) * shard.grad.as<float>()[i];
    trainer->params().refresh_compute(*trainer->layout().stream);
  }
  EvalResult evaluate() { return trainer->evaluate(source, 0); }

  TokenSource source;
  RunConfig config;
  std::unique_ptr<Trainer> trainer;
  std::optional<Sampler> sampler;
  std::unique_ptr<Loader> loader;
};

// The loss of the pairs by its formula. The source's documents are the answers, in order, and padding.
double loss_by_formula(const TokenSource& source, const std::vector<double>& log_p,
                       const std::vector<double>& reference, double beta) {
  double sum = 0;
  const std::vector<int64_t>& begins = source.documents().positions;
  size_t pairs = 0;
  for (size_t i = 0; i + 1 < begins.size(); ++i) {
    if (begins[i] / DpoTraining::kContext != begins[i + 1] / DpoTraining::kContext) continue;  // padding
    sum += std::log1p(std::exp(-beta * (log_p[i] - reference[i] - log_p[i + 1] + reference[i + 1])));
    ++pairs;
    ++i;
  }
  EXPECT_EQ(pairs, 8u);
  return sum / 8;
}

TEST(DpoTraining, BeginsAtTheLogarithmOfTwo) {
  for (const char* compute : {"precision.compute=f32", "precision.compute=bf16"}) {
    DpoTraining training({compute});
    training.set_references(training.scores());
    EXPECT_NEAR(training.evaluate().loss, std::log(2), 1e-5) << compute;
    EXPECT_EQ(training.evaluate().tokens, 8) << "pairs";
    const StepResult step = training.trainer->step(*training.loader, {.lr = 3e-3});
    EXPECT_NEAR(step.loss, std::log(2), 1e-3) << compute;
    EXPECT_NEAR(step.rewards[0], 0, 1e-3);
  }
}

TEST(DpoTraining, LossRewardsAndAccuracyFollowFromTheScoresOfBothAnswers) {
  DpoTraining training({});
  const std::vector<double> reference = training.scores();
  training.set_references(reference);
  for (int i = 0; i < 4; ++i) training.trainer->step(*training.loader, {.lr = 3e-3});
  const std::vector<double> log_p = training.scores();
  const double want = loss_by_formula(training.source, log_p, reference, 0.2);
  EXPECT_LT(want, 0.6) << "it learns";
  EXPECT_NEAR(training.evaluate().loss, want, 1e-5);
  EXPECT_GT(training.evaluate().top1, 0.9);
  const StepResult step = gradients(*training.trainer, *training.loader, 1);
  EXPECT_GT(step.rewards[0], step.rewards[1]);
  EXPECT_GT(step.top1, 0.9);
}

// Along the gradient, the loss changes by the gradient's squared norm.
TEST(DpoTraining, TheGradientIsTheDerivativeOfTheLoss) {
  for (const char* head : {"head.kind=chunked", "head.kind=dense", "head.kind=recompute"})
    for (const char* tied : {"model.tied=true", "model.tied=false"}) {
      DpoTraining training({head, tied, "train.batch_size=8"});
      training.set_references(training.uneven_references());
      const StepResult step = gradients(*training.trainer, *training.loader, 1);
      EXPECT_NEAR(step.loss, training.evaluate().loss, 1e-6 * step.loss);
      const double h = 1e-3 / step.grad_norm, scale = h * step.grad_correction / step.grad_norm;
      training.move(scale);
      const double above = training.evaluate().loss;
      training.move(-2 * scale);
      const double below = training.evaluate().loss;
      // d = h g / |g|: the change is 2 h |g|.
      EXPECT_NEAR((above - below) / (2 * h), step.grad_norm, 2e-3 * step.grad_norm) << head << " " << tied;
    }
}

TEST(DpoTraining, GradientsAreMeansOverThePairsOfAllMicroBatches) {
  const auto step_of = [](const char* batch, const char* accum, const char* compute) {
    DpoTraining training({batch, accum, compute});
    training.set_references(training.uneven_references());
    return training.trainer->step(*training.loader, {.lr = 3e-3});
  };
  const StepResult whole = step_of("train.batch_size=4", "train.grad_accum=1", "precision.compute=f32"),
                   parts = step_of("train.batch_size=1", "train.grad_accum=4", "precision.compute=f32"),
                   bf16 = step_of("train.batch_size=4", "train.grad_accum=1", "precision.compute=bf16");
  EXPECT_EQ(parts.tokens, whole.tokens);
  EXPECT_NEAR(parts.loss, whole.loss, 1e-6 * whole.loss);
  EXPECT_NEAR(parts.grad_norm, whole.grad_norm, 1e-5 * whole.grad_norm);
  EXPECT_NEAR(parts.rewards[0], whole.rewards[0], 1e-5);
  EXPECT_NEAR(bf16.loss, whole.loss, 0.02 * whole.loss);
  EXPECT_NEAR(bf16.grad_norm, whole.grad_norm, 0.02 * whole.grad_norm);
}

// The prompt and what is behind a document do not count, so a pair in a window of its own has the same loss.
TEST(DpoTraining, TheNeighboursOfAPairDoNotChangeItsScores) {
  DpoTraining training({});
  const std::vector<double> together = training.scores();
  TokenSource alone = pack(std::vector<ChatTokens>{pair_of(2, 5, 7)}, DpoTraining::kContext, 61);
  const std::vector<double> own = training.trainer->score_documents(alone);
  size_t found = 0;
  for (size_t i = 0; i + 1 < together.size(); ++i)
    found += std::abs(together[i] - own[0]) < 1e-5 && std::abs(together[i + 1] - own[1]) < 1e-5 ? 1 : 0;
  EXPECT_EQ(found, 1u);
}

TEST(DpoTraining, ConfigurationsWithoutItsLossAreRefused) {
  const auto refusal = [](const std::string& key) -> std::string {
    try {
      small_config({"dpo.beta=0.1", "data.document_mask=true", key});
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  };
  EXPECT_EQ(refusal("head.z_loss=1e-4"),
            "--set: dpo.beta = 0.1 needs head.z_loss, head.label_smoothing and head.filter = 0");
  EXPECT_EQ(refusal("model.dropout=0.1"),
            "--set: dpo.beta = 0.1 needs model.dropout = 0: the reference is computed without");
  EXPECT_EQ(refusal("parallel.pp=2"),
            "--set: dpo.beta = 0.1 needs parallel.pp = 1: a stage of a pipeline gets no reference");
  EXPECT_EQ(refusal("dpo.beta=-1"), "--set: dpo.beta must lie in [0, 1000] (0 is off), got -1");
}

}  // namespace
}  // namespace ingot
