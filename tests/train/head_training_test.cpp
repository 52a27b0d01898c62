// Training with every head, and the stop when the loss that is trained on is not the loss.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "ingot/train/config_toml.h"
#include "ingot/train/trainer.h"

namespace ingot {
namespace {

// A learnable stream: each token follows from the one before.
TokenSource chain() {
  std::vector<uint16_t> tokens(4000);
  for (size_t i = 1; i < tokens.size(); ++i)
    tokens[i] = static_cast<uint16_t>((tokens[i - 1] * 5 + 3 + (i % 17 == 0)) % 61);
  TokenSource source;
  source.add(tokens);
  return source;
}

RunConfig config_with(const std::vector<std::string>& assignments) {
  ConfigBuilder builder;
  for (const char* always : {"model.layers=1", "model.heads=2", "model.width=32", "model.context=32",
                             "model.vocab=61", "model.tied=false", "data.tokenizer=char",
                             "train.batch_size=4", "train.grad_accum=2", "head.raw_ce_every=1"})
    builder.add_override(always);
  for (const std::string& assignment : assignments) builder.add_override(assignment);
  return builder.build();
}

struct Training {
  explicit Training(const RunConfig& config)
      : trainer(config),
        sampler(SampleOrder::kRandom, 1, source.tokens(), config.model.context),
        loader(source, sampler, {.shape = trainer.batch_shape(), .readers = 1, .reader = 0, .ring = 2}) {
    trainer.initialise();
  }
  StepResult steps(int n) {
    StepResult last;
    for (int i = 0; i < n; ++i) last = trainer.step(loader, {.lr = 3e-3});
    return last;
  }

  TokenSource source = chain();
  Trainer trainer;
  Sampler sampler;
  Loader loader;
};

TEST(HeadTraining, EveryHeadLearnsTheSame) {
  const double want = Training(config_with({})).steps(40).loss;
  EXPECT_LT(want, 0.8 * std::log(61.0));
  for (const char* compute : {"f32", "bf16"})
    for (const char* kind : {"dense", "chunked", "recompute"})
      for (const char* precision : {"compute", "f32", "bf16", "fp8"}) {
        Training run(
            config_with({std::string("precision.compute=") + compute, std::string("head.kind=") + kind,
                         std::string("head.precision=") + precision}));
        const StepResult last = run.steps(40);
        EXPECT_NEAR(last.loss, want, 0.1 * want) << compute << " " << kind << " " << precision;
        EXPECT_GT(last.raw.tokens, 0);
        EXPECT_NEAR(last.raw.ce, last.loss, 0.3);
      }
}

TEST(HeadTraining, EveryOptionTrains) {
  const double want = Training(config_with({})).steps(40).loss;
  for (const char* option : {"head.z_loss=1e-4", "head.label_smoothing=0.01", "head.accumulation=kahan",
                             "model.cap=tanh", "model.cap=sigmoid", "head.fp8_scaling=current"}) {
    Training run(config_with({"head.precision=fp8", "model.cap_a=30", option}));
    EXPECT_NEAR(run.steps(40).loss, want, 0.15 * want) << option;
  }
  Training filtered(config_with({"head.kind=recompute", "head.filter=1e-5"}));
  EXPECT_NEAR(filtered.steps(40).loss, want, 0.1 * want);
}

TEST(HeadTraining, WeightsWithoutF32Masters) {
  const double want = Training(config_with({})).steps(40).loss;
  for (const char* master : {"bf16_stochastic", "bf16_tail"})
    for (const char* precision : {"compute", "fp8"}) {
      Training run(config_with({"precision.compute=bf16", std::string("precision.master=") + master,
                                std::string("head.precision=") + precision}));
      EXPECT_NEAR(run.steps(40).loss, want, 0.15 * want) << master << " " << precision;
    }
}

TEST(HeadTraining, ALossThatIsNotTheLossStopsTheRun) {
  Training run(config_with({"precision.compute=bf16"}));
  run.steps(20);
  // The copies that products read are no longer what the optimizer keeps.
  const auto& specs = run.trainer.model().params().specs();
  for (size_t p = 0; p < specs.size(); ++p) {
    if (specs[p].role != Role::kHead) continue;
    const Tensor w = run.trainer.params().weight(static_cast<int>(p));
    for (int64_t i = 0; i < w.elements(); ++i) w.as<bf16>()[i] = bf16(0.0f);
  }
  try {
    run.steps(1);
    FAIL() << "went on";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kNumerics);
    EXPECT_THAT(error.what(), ::testing::HasSubstr("what is trained on is not the loss any more"));
    EXPECT_THAT(error.what(), ::testing::HasSubstr("head.raw_ce_limit"));
  }
  EXPECT_EQ(run.trainer.steps_done(), 20);
}

TEST(HeadTraining, ConfigErrorsNameTheKey) {
  const auto refusal = [](const std::string& assignment) {
    try {
      config_with({assignment});
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kUsage);
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_EQ(refusal("head.filter=0.5"),
            "--set: head.filter must be 0 unless head.kind = \"recompute\", got 0.5");
  EXPECT_EQ(refusal("head.label_smoothing=1"), "--set: head.label_smoothing must lie in [0, 1), got 1");
  EXPECT_THROW(config_with({"precision.compute=bf16", "precision.master=bf16_tail", "head.precision=f32"}),
               Error);
  EXPECT_EQ(refusal("head.z_loss=-1"), "--set: head.z_loss must not be negative (0 is off), got -1");
}

}  // namespace
}  // namespace ingot
