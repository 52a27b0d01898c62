// Injects values that are not finite. They must be found before the optimizer runs, named, and handled
// as configured.
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "ingot/checkpoint/checkpoint.h"
#include "ingot/formats/metrics_log.h"
#include "ingot/parallel/parallelize.h"
#include "tests/reference/error_of.h"
#include "tests/run/poisoned_checkpoint.h"
#include "tests/run/training_fixture.h"
#include "tests/train/gradients.h"
#include "tests/train/small_training.h"

namespace ingot {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr int32_t kRare = 250;  // a token that occurs once

// A trainer on random tokens below 200, with kRare in one place.
struct Bench : SmallTraining {
  explicit Bench(RunConfig c) : SmallTraining(c, random_tokens()), config(std::move(c)) {}
  static TokenSource random_tokens() {
    std::vector<uint16_t> tokens(kTokens);
    const RandomKey key{.seed = 5, .purpose = Purpose::kSample, .stream = 0, .step = 0};
    for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<uint16_t>(random_word(key, i) % 200);
    tokens[kPlace] = kRare;
    return source_of(std::move(tokens));
  }
  // Returns the first sample of a step of 2 x 3 windows in which only the second micro-batch reads kRare.
  int64_t step_with_rare_second() const {
    const auto reads = [&](int64_t sample) {
      const int64_t start = sampler.start(sample);
      return start <= kPlace && kPlace < start + config.model.context;
    };
    for (int64_t first = 0;; first += 6) {
      const bool in_first = reads(first) || reads(first + 1) || reads(first + 2);
      if (!in_first && (reads(first + 3) || reads(first + 4) || reads(first + 5))) return first;
    }
  }
  float* weight(const std::string& name) {
    const auto& specs = trainer.params().list().specs();
    for (size_t p = 0; p < specs.size(); ++p)
      if (specs[p].name == name) return trainer.params().master(static_cast<int>(p)).as<float>();
    ADD_FAILURE() << "no weight " << name;
    return nullptr;
  }
  StepResult gradients() { return ingot::gradients(trainer, loader, config.train.grad_accum); }

  static constexpr size_t kTokens = 3000, kPlaceIndex = 1234;
  static constexpr int64_t kPlace = kPlaceIndex;
  RunConfig config;
};

RunConfig bench_config() {
  RunConfig c;
  c.model = {.layers = 3, .heads = 2, .width = 32, .context = 24, .vocab = 256, .is_tied = false};
  c.train.batch_size = 3;
  c.train.grad_accum = 2;
  return c;
}

TEST(NonFinite, ALossIsTracedToMicroBatchLayerAndWeight) {
  Bench bench(bench_config());
  bench.weight("embedding.weight")[kRare * 32 + 5] = kNaN;
  const int64_t first = bench.step_with_rare_second();
  bench.loader.seek(first);
  const StepResult result = bench.gradients();
  ASSERT_TRUE(result.non_finite);
  EXPECT_EQ(result.non_finite->kind, NonFinite::Kind::kLoss);
  EXPECT_EQ(result.non_finite->micro, 1);
  EXPECT_EQ(result.non_finite->place.layer, "embedding");
  EXPECT_EQ(result.non_finite->place.tensor, "weight embedding.weight");
  EXPECT_EQ(bench.loader.position(), first + 6) << "the loader goes on behind the step";
}

// The report names the right activation under every policy, also where activations share memory and a
// later one has overwritten an earlier one.
TEST(NonFinite, AnOverflowIsTracedToTheActivation) {
  using Policy = RecomputePolicy;
  const std::pair<Policy, const char*> cases[] = {
      {Policy::kNone, "block 1"}, {Policy::kBlock, "block 1"}, {Policy::kSqrt, "block 1"}};
  for (const auto& [policy, layer] : cases) {
    RunConfig c = bench_config();
    c.activations.policy = policy;
    Bench bench(c);
    std::fill_n(bench.weight("blocks.1.mlp.up.weight"), 32, 1e3f);
    std::fill_n(bench.weight("blocks.1.mlp.down.weight"), 32 * 32, 3e38f);
    const StepResult result = bench.gradients();
    ASSERT_TRUE(result.non_finite);
    EXPECT_EQ(result.non_finite->micro, 0);
    EXPECT_EQ(result.non_finite->place.layer, layer);
    EXPECT_EQ(result.non_finite->place.tensor, "output of the MLP");
  }
}

TEST(NonFinite, AGradientThatOverflowsUnderAFiniteLossIsFoundByReplay) {
  Bench bench(bench_config());
  std::fill_n(bench.weight("head.weight") + 7 * 32, 32, 1e37f);
  const StepResult result = bench.gradients();
  EXPECT_TRUE(std::isfinite(result.loss)) << result.loss;
  ASSERT_TRUE(result.non_finite);
  EXPECT_NE(result.non_finite->kind, NonFinite::Kind::kLoss);
  EXPECT_EQ(result.non_finite->micro, 0);
  EXPECT_THAT(result.non_finite->text(), HasSubstr("gradient"));
  EXPECT_EQ(bench.loader.position(), 6);
}

TEST(NonFinite, AGradientThatOverflowsOnlyInTheSumIsReportedAsTheSum) {
  Bench bench(bench_config());
  const ParamList& list = bench.trainer.params().list();
  int id = 0;
  while (list[id].name != "head.norm.weight") ++id;
  bench.trainer.params().grad(id).as<float>()[0] = kNaN;
  const StepResult result = bench.gradients();
  ASSERT_TRUE(result.non_finite);
  EXPECT_EQ(result.non_finite->kind, NonFinite::Kind::kGradient);
  EXPECT_EQ(result.non_finite->micro, -1);
  EXPECT_EQ(result.non_finite->place.tensor, "gradient of head.norm.weight");
}

// After discard() the next steps equal those of a trainer that never ran the discarded step.
TEST(NonFinite, ADiscardedStepLeavesNoTrace) {
  RunConfig c = bench_config();
  c.model.dropout = 0.1;
  Bench troubled(c), calm(c);
  const int64_t first = troubled.step_with_rare_second();
  float& poisoned = troubled.weight("embedding.weight")[kRare * 32];
  const float before = poisoned;
  poisoned = kNaN;
  troubled.loader.seek(first);
  ASSERT_TRUE(troubled.gradients().non_finite);
  troubled.trainer.discard();
  poisoned = before;
  calm.loader.seek(first + 6);
  EXPECT_EQ(troubled.trainer.state().steps_done, 0);
  for (int i = 0; i < 2; ++i) {
    const StepResult a = troubled.trainer.step(troubled.loader, {.lr = 1e-3});
    const StepResult b = calm.trainer.step(calm.loader, {.lr = 1e-3});
    EXPECT_EQ(a.loss, b.loss);
    EXPECT_EQ(a.grad_norm, b.grad_norm);
  }
}

TEST(NonFinite, AStepRefusesTheUpdate) {
  Bench bench(bench_config());
  bench.weight("embedding.weight")[kRare * 32] = kNaN;
  bench.loader.seek(bench.step_with_rare_second());
  EXPECT_THAT(error_of([&] { bench.trainer.step(bench.loader, {.lr = 1e-3}); }, ErrorKind::kNumerics),
              HasSubstr("micro-batch 1"));
  EXPECT_EQ(bench.trainer.state().steps_done, 0);
}

// Runs on a text with a few Z. In a checkpoint the embedding of Z becomes so large, though finite, that
// LayerNorm's sums overflow.
class Trouble : public TrainingTest {
 protected:
  void SetUp() override {
    TrainingTest::SetUp();
    std::string words = read_file(text);
    for (size_t i = 1; i <= 5; ++i) words[i * words.size() / 8] = 'Z';
    write_file(text, words);
  }
  RunConfig troubled(GuardPolicy policy) const {
    RunConfig c = config(DType::f32);
    c.model.is_tied = false;
    c.model.norm = NormKind::kLayerNorm;
    c.data.tokenizer = "char";
    c.train.steps = 45;
    c.eval.every = 0;
    c.checkpoint.every = 5;
    c.checkpoint.keep = 3;
    c.guard.non_finite = policy;
    c.guard.max_skips = 10;
    return c;
  }
  // Trains ten steps and then saves a checkpoint in which the embedding of Z overflows every norm.
  void poison(const fs::path& run) {
    RunConfig c = troubled(GuardPolicy::kStop);
    c.train.stop_at = 10;
    const TrainOutcome outcome = train(c, run);
    c.train.stop_at = 0;
    save_poisoned(c, outcome.checkpoint, run);
  }
  static nlohmann::json trainer_json(const fs::path& checkpoint) {
    return nlohmann::json::parse(read_file(checkpoint / "trainer.json"));
  }
  static int64_t events(const fs::path& run, const std::string& name) {
    int64_t count = 0;
    for (const MetricsRow& row : read_metrics(run / "metrics.jsonl"))
      for (const auto& [key, value] : row.fields)
        if (key == "event" && std::get<std::string>(value) == name) ++count;
    return count;
  }
};

TEST_F(Trouble, StopsAndNamesTheCause) {
  poison(folder / "run");
  expect_error(ErrorKind::kNumerics, [&] { train(troubled(GuardPolicy::kStop), folder / "run", true); },
               {"step ", "micro-batch ", "block 0", "output of attention"});
  EXPECT_EQ(events(folder / "run", "non_finite"), 1);
}

TEST_F(Trouble, SkipsTheBatchAndCountsNoStep) {
  poison(folder / "run");
  const TrainOutcome outcome = train(troubled(GuardPolicy::kSkip), folder / "run", true);
  EXPECT_EQ(outcome.status, TrainOutcome::Status::kCompleted);
  EXPECT_EQ(outcome.steps, 45);
  const int64_t skipped = events(folder / "run", "non_finite");
  EXPECT_GT(skipped, 0);
  const nlohmann::json state = trainer_json(outcome.checkpoint);
  EXPECT_EQ(state["optimizer_t"], 45);
  EXPECT_EQ(state["sample_position"], (45 + skipped) * 6);
  EXPECT_THAT(said, HasSubstr("batch skipped"));
  EXPECT_TRUE(std::isfinite(outcome.final_eval.loss));
}

TEST_F(Trouble, RollsBackAndNeverReadsTheBatchAgain) {
  poison(folder / "run");
  fs::copy(folder / "run", folder / "parts", fs::copy_options::recursive);
  const RunConfig c = troubled(GuardPolicy::kRollback);
  const TrainOutcome outcome = train(c, folder / "run", true);
  EXPECT_EQ(outcome.steps, 45);
  EXPECT_GT(events(folder / "run", "rollback"), 0);
  const nlohmann::json state = trainer_json(outcome.checkpoint);
  EXPECT_EQ(state["optimizer_t"], 45);
  const int64_t left_out = std::ssize(state["excluded_samples"]);
  EXPECT_GT(left_out, 0);
  EXPECT_EQ(state["sample_position"], (45 + left_out) * 6);

  // A run that is stopped in between ends with the same bytes.
  RunConfig part = c;
  for (int64_t stop_at : {23, 37, 0}) {
    part.train.stop_at = stop_at;
    train(part, folder / "parts", true);
  }
  expect_equal_files(outcome.checkpoint, folder / "parts/checkpoints/step-000000045");
}

// A run that may roll back saves a checkpoint at step 0, so that it can return to its beginning.
TEST_F(Trouble, ARunThatMayRollBackBeginsWithACheckpoint) {
  RunConfig c = troubled(GuardPolicy::kRollback);
  c.train.stop_at = 1;
  c.checkpoint.every = 40;
  train(c, folder / "run");
  EXPECT_TRUE(fs::exists(folder / "run/checkpoints/step-000000000/MANIFEST.json"));
}

TEST_F(Trouble, GivesUpAfterTooManyRollbacks) {
  poison(folder / "run");
  RunConfig c = troubled(GuardPolicy::kSkip);
  c.guard.max_skips = 0;
  EXPECT_THAT(error_of([&] { train(c, folder / "run", true); }), HasSubstr("guard.max_skips = 0"));
}

TEST_F(Trouble, ASpikeIsReportedOrSkipped) {
  for (GuardPolicy policy : {GuardPolicy::kReport, GuardPolicy::kSkip}) {
    RunConfig c = troubled(GuardPolicy::kStop);
    c.guard.spike = policy;
    c.guard.spike_window = 16;
    c.guard.spike_threshold = 1.5;  // noise alone exceeds it
    c.optimizer.lr = 1e-9;          // the loss changes by noise only
    c.guard.max_skips = 1000;
    const fs::path run = folder / (policy == GuardPolicy::kReport ? "report" : "skip");
    const TrainOutcome outcome = train(c, run);
    EXPECT_EQ(outcome.steps, 45);
    const int64_t spikes = events(run, "spike");
    EXPECT_GT(spikes, 0);
    const int64_t left_out = policy == GuardPolicy::kSkip ? spikes : 0;
    EXPECT_EQ(trainer_json(outcome.checkpoint)["sample_position"], (45 + left_out) * 6);
  }
}

}  // namespace
}  // namespace ingot
