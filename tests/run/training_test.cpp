// Tests whole runs: equal configurations give equal bytes, a run in three parts equals an uninterrupted
// run, accumulation equals one large batch, and no document changes the loss of another.
#include <algorithm>
#include <cmath>

#include "ingot/checkpoint/checkpoint.h"
#include "ingot/core/parallel.h"
#include "ingot/core/philox.h"
#include "ingot/optim/rules/all_rules.h"
#include "ingot/optim/rules/rule_list.h"
#include "ingot/parallel/parallelize.h"
#include "tests/reference/error_of.h"
#include "tests/run/training_fixture.h"
#include "tests/train/small_training.h"

namespace ingot {
namespace {

namespace fs = std::filesystem;

TEST_F(TrainingTest, ARunResumedTwiceEqualsAnUninterruptedRun) {
  for (DType compute : {DType::f32, DType::bf16, DType::f16}) {
    const fs::path whole = folder / fmt::format("whole-{}", name(compute));
    const fs::path parts = folder / fmt::format("parts-{}", name(compute));
    const TrainOutcome want = train(config(compute), whole);
    EXPECT_EQ(want.status, TrainOutcome::Status::kCompleted);
    RunConfig part = config(compute);
    part.train.stop_at = 20;
    EXPECT_EQ(train(part, parts).status, TrainOutcome::Status::kStopped);
    part.train.stop_at = 40;
    EXPECT_EQ(train(part, parts, true).steps, 40);
    part.train.stop_at = 0;
    const TrainOutcome got = train(part, parts, true);
    EXPECT_EQ(got.steps, 60);
    EXPECT_EQ(got.tokens, want.tokens);
    expect_equal_files(want.checkpoint, got.checkpoint);
  }
}

// All state that a rule declares goes through a checkpoint bit by bit.
TEST_F(TrainingTest, EachOptimizerResumesExactly) {
  for (const RuleEntry& entry : rules()) {
    RunConfig c = config(DType::bf16);
    c.train.steps = 6;
    c.eval.every = 0;
    if (entry.is_matrix_rule)
      c.optimizer.groups = {{.roles = {ParamRole::kMatrix}, .rule = {.kind = std::string(entry.name)}}};
    else
      c.optimizer.rule.kind = entry.name;
    if (entry.name == "muon") c.optimizer.groups[0].rule.options.set(&Muon::Options::normuon, true);
    const TrainOutcome want = train(c, folder / fmt::format("whole-{}", entry.name));
    c.train.stop_at = 3;
    const fs::path parts = folder / fmt::format("parts-{}", entry.name);
    train(c, parts);
    c.train.stop_at = 0;
    const TrainOutcome got = train(c, parts, true);
    expect_equal_files(want.checkpoint, got.checkpoint);
  }
}

// Weights without f32 masters and averages of the weights go through a checkpoint bit by bit too.
TEST_F(TrainingTest, EachKindOfMastersResumesExactly) {
  for (Masters masters : {Masters::kNone, Masters::kTail})
    for (double ema : {0.0, 0.9}) {
      RunConfig c = config(DType::bf16);
      c.train.steps = 6;
      c.eval.every = 2;
      c.precision.master = masters;
      c.optimizer.ema = ema;
      const std::string kind = fmt::format("{}-{}", static_cast<int>(masters), ema);
      const TrainOutcome want = train(c, folder / ("whole-" + kind));
      c.train.stop_at = 3;
      train(c, folder / ("parts-" + kind));
      c.train.stop_at = 0;
      const TrainOutcome got = train(c, folder / ("parts-" + kind), true);
      expect_equal_files(want.checkpoint, got.checkpoint);
    }
}

// A matrix element takes 6 bytes with an f32 master and a bf16 copy, 2 without a master, and 4 with a
// bf16 tail. In the last two cases a vector element takes 4 bytes more.
TEST_F(TrainingTest, MastersTakeTheBytesOfTheirFormat) {
  for (const auto& [masters, bytes] :
       {std::pair<Masters, size_t>{Masters::kF32, 6}, {Masters::kNone, 2}, {Masters::kTail, 4}}) {
    RunConfig c = config(DType::bf16);
    c.model.vocab = 256;
    c.precision.master = masters;
    Trainer trainer(c, parallelize(c));
    const ParamList& list = trainer.layout().model->params();
    size_t want = static_cast<size_t>(list.elements()) * bytes;
    for (int u = 0; u < list.units() && masters != Masters::kF32; ++u)
      want += static_cast<size_t>(list.vector_elements(u)) * 4;
    EXPECT_EQ(trainer.params().arenas()[0]->used_bytes(), want);
  }
}

// With optimizer.ema, evaluation uses the averages, and training continues with the weights.
TEST_F(TrainingTest, AveragesAreEvaluatedAndLeaveTheWeightsAlone) {
  for (Masters masters : {Masters::kF32, Masters::kNone, Masters::kTail}) {
    RunConfig c = config(DType::bf16);
    c.model.vocab = 256;
    c.model.dropout = 0;
    c.optimizer.lr = 0.01;
    c.optimizer.ema = 0.99;
    c.precision.master = masters;
    RunConfig without = c;
    without.optimizer.ema = 0;
    std::vector<double> losses, evaluated;
    for (const RunConfig& run : {c, without}) {
      SmallTraining training(run, squares());
      for (int i = 0; i < 8; ++i) {
        losses.push_back(training.trainer.step(training.loader, {.lr = 0.01}).loss);
        evaluated.push_back(training.trainer.evaluate(training.source, 400).loss);
      }
    }
    for (size_t i = 0; i < 8; ++i) EXPECT_EQ(losses[i], losses[i + 8]);
    EXPECT_NEAR(evaluated[0], evaluated[8], 0.01 * evaluated[8]);  // the average starts equal to the weights
    EXPECT_GT(evaluated[7], evaluated[15] + 0.1);                  // and then lags behind them
  }
}

// 8-bit states do not raise the loss: that of each seed moves by less than a fifth of what the seeds differ.
TEST_F(TrainingTest, EightBitStatesReachTheLossOfF32States) {
  std::map<std::string, std::vector<double>> losses;
  for (const char* kind : {"adamw", "adamw8bit"})
    for (uint64_t seed : {1, 2, 3}) {
      RunConfig c = config(DType::f32);
      c.model.dropout = 0;
      c.optimizer.lr = 3e-3;
      c.optimizer.rule.kind = kind;
      c.train.seed = seed;
      c.eval.every = 0;
      c.checkpoint.every = 0;
      const fs::path run = folder / fmt::format("{}-{}", kind, seed);
      losses[kind].push_back(train(c, run).final_eval.loss);
    }
  const auto [least, most] = std::ranges::minmax(losses["adamw"]);
  for (size_t i = 0; i < 3; ++i)
    EXPECT_NEAR(losses["adamw8bit"][i], losses["adamw"][i], (most - least) / 5) << "seed " << i + 1;
}

TEST_F(TrainingTest, AnotherOptimizersCheckpointIsRefused) {
  RunConfig c = config(DType::f32);
  c.train.stop_at = 1;
  for (const auto& [saved, resumed] : {std::pair{"adamw", "adamw8bit"}, {"adamw", "sgd"}}) {
    c.optimizer.rule.kind = saved;
    const fs::path run = folder / fmt::format("run-{}", resumed);
    train(c, run);
    c.optimizer.rule.kind = resumed;
    EXPECT_THAT(usage_error([&] { train(c, run, true); }),
                testing::HasSubstr("optimizer.kind \"adamw\" -> "));
  }
}

// Delayed scaling uses amaxes of earlier steps, so they are part of a checkpoint.
TEST_F(TrainingTest, DelayedScalingResumesExactly) {
  RunConfig c = config(DType::bf16);
  c.train.steps = 30;
  c.precision.fp8 = {.recipe = Fp8Recipe::kDelayed, .amax_history = 4};
  c.head.precision = HeadPrecision::kFp8;
  const TrainOutcome want = train(c, folder / "whole");
  c.train.stop_at = 15;
  train(c, folder / "parts");
  c.train.stop_at = 0;
  const TrainOutcome got = train(c, folder / "parts", true);
  EXPECT_TRUE(fs::exists(got.checkpoint / "fp8.safetensors"));
  expect_equal_files(want.checkpoint, got.checkpoint);
}

TEST_F(TrainingTest, EqualRunsGiveEqualBytesForEachNumberOfThreads) {
  const int before = num_threads();
  for (int threads : {1, 2}) {
    RunConfig c = config(DType::f32);
    c.train.threads = threads;
    c.train.steps = 10;
    const fs::path a = train(c, folder / fmt::format("a{}", threads)).checkpoint;
    const fs::path b = train(c, folder / fmt::format("b{}", threads)).checkpoint;
    expect_equal_files(a, b);
  }
  set_num_threads(before);
}

TEST_F(TrainingTest, AnotherSeedGivesAnotherModel) {
  RunConfig c = config(DType::f32);
  c.train.steps = 3;
  const fs::path a = train(c, folder / "a").checkpoint;
  c.train.seed += 1;
  const fs::path b = train(c, folder / "b").checkpoint;
  EXPECT_NE(read_file(a / "model.safetensors"), read_file(b / "model.safetensors"));
}

TEST_F(TrainingTest, TheLossFalls) {
  RunConfig c = config(DType::bf16);
  c.model.dropout = 0;
  c.optimizer.lr = 3e-3;
  const TrainOutcome outcome = train(c, folder / "run");
  EXPECT_LT(outcome.final_eval.loss, 0.7 * std::log(300.0));
}

TEST_F(TrainingTest, ADamagedCheckpointIsSkipped) {
  RunConfig c = config(DType::f32);
  const TrainOutcome want = train(c, folder / "undisturbed");
  c.train.stop_at = 30;
  const fs::path run = folder / "run";
  const TrainOutcome first = train(c, run);
  std::string bytes = read_file(first.checkpoint / "model.safetensors");
  bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 1);
  write_file(first.checkpoint / "model.safetensors", bytes);
  c.train.stop_at = 0;
  RunFolder opened(run, true);
  std::string said;
  Console console([&](std::string_view text) { said += text; }, 0);
  std::atomic<bool> is_interrupted = false;
  Mesh alone = Mesh::alone();
  const TrainOutcome outcome = run_training(c, opened, true, console, is_interrupted, alone);
  EXPECT_EQ(outcome.steps, 60);
  EXPECT_NE(said.find("model.safetensors"), std::string::npos) << said;
  EXPECT_NE(said.find("step-000000015"), std::string::npos) << said;
  expect_equal_files(want.checkpoint, outcome.checkpoint);
}

TEST_F(TrainingTest, OtherDataIsRefusedOnResume) {
  RunConfig c = config(DType::f32);
  c.train.stop_at = 5;
  train(c, folder / "run");
  write_file(text, read_file(text) + "and one more line\n");
  EXPECT_THAT(usage_error([&] { train(c, folder / "run", true); }), testing::HasSubstr("data.train"));
}

TEST_F(TrainingTest, AnInterruptSavesAndResumes) {
  RunConfig c = config(DType::f32);
  RunFolder run(folder / "run", false);
  std::atomic<bool> is_interrupted = false;
  Console console(
      [&](std::string_view text) { is_interrupted = is_interrupted || text.find("step ") != text.npos; }, 0);
  Mesh alone = Mesh::alone();
  const TrainOutcome outcome = run_training(c, run, false, console, is_interrupted, alone);
  EXPECT_EQ(outcome.status, TrainOutcome::Status::kInterrupted);
  EXPECT_TRUE(fs::exists(outcome.checkpoint / "MANIFEST.json"));
}

// One batch of 4, two micro-batches of 2 and four of 1 give the same loss and gradient norm. The norm is
// compared because AdamW's first step divides by the size of the gradient.
TEST_F(TrainingTest, AccumulationEqualsOneLargeBatch) {
  std::vector<StepResult> results;
  for (const auto& [batch, accum] : {std::pair<int64_t, int64_t>{4, 1}, {2, 2}, {1, 4}}) {
    RunConfig c = config(DType::f32);
    c.model.dropout = 0.1;
    c.model.vocab = 256;
    c.train.batch_size = batch;
    c.train.grad_accum = accum;
    SmallTraining training(c, squares());
    for (int i = 0; i < 2; ++i) results.push_back(training.trainer.step(training.loader, {.lr = 1e-3}));
  }
  for (size_t i = 2; i < results.size(); ++i) {
    EXPECT_NEAR(results[i].loss, results[i % 2].loss, 1e-5);
    EXPECT_NEAR(results[i].grad_norm, results[i % 2].grad_norm, 1e-4 * results[i % 2].grad_norm);
    EXPECT_EQ(results[i].tokens, results[i % 2].tokens);
  }
}

// A checkpoint's averages, which training evaluates with optimizer.ema, can be evaluated and sampled from.
TEST_F(TrainingTest, AveragesCanBeLoaded) {
  RunConfig c = config(DType::f32);
  c.train.steps = 12;
  c.optimizer.ema = 0.9;
  c.data.val = c.data.train;
  const TrainOutcome trained = train(c, folder / "averaged");
  EvalOptions options;
  options.data = c.data.val;
  const double plain = evaluate_checkpoint(trained.checkpoint, options).result.loss;
  options.model.is_averaged = true;
  const double averaged = evaluate_checkpoint(trained.checkpoint, options).result.loss;
  EXPECT_NEAR(averaged, trained.final_eval.loss, 1e-5);
  EXPECT_GT(std::abs(plain - averaged), 1e-3);
  GenerateOptions sample;
  sample.prompts = {"the cat"};
  sample.model.is_averaged = true;
  sample.tokens = 3;
  std::string text;
  generate_from_checkpoint(trained.checkpoint, sample,
                           [&](size_t, std::string_view piece, bool) { text += piece; });
  EXPECT_GT(text.size(), sample.prompts[0].size());

  c.optimizer.ema = 0;
  const TrainOutcome without = train(c, folder / "plain");
  EXPECT_THAT(usage_error([&] { evaluate_checkpoint(without.checkpoint, options); }),
              testing::HasSubstr("leave out --ema"));
}

// With the document mask, the losses of one document have the same bits for any content of the other.
// Without the mask they differ.
TEST_F(TrainingTest, DocumentsDoNotLeak) {
  for (DType compute : {DType::f32, DType::bf16, DType::f16})
    for (bool has_mask : {true, false}) {
      RunConfig c = config(compute);
      c.model.vocab = 64;
      c.model.kv_heads = 0;
      c.model.dropout = 0;
      const int64_t T = c.model.context, cut = 11;
      const Transformer model(c.model.resolved(), compute);
      ResidentStore params(model.params(), compute, false);
      init_params(params, 3);
      Stream stream;
      params.refresh_compute(stream);
      Arena arena("activations", size_t{8} << 20), scratch("scratch", model.scratch_bytes(1, T, false));
      Region region;
      LayerContext ctx{
          .params = params, .region = region, .scratch = scratch, .stream = stream, .dropout = {}};
      std::vector<std::vector<float>> losses;
      for (int32_t variant : {0, 1}) {
        std::vector<int32_t> tokens, targets, starts;
        for (int64_t t = 0; t < T; ++t) {
          tokens.push_back(static_cast<int32_t>(t < cut ? (t * 7 + variant * (t + 1)) % 60 : (t * 5) % 60));
          targets.push_back(static_cast<int32_t>((t * 3) % 60));
          starts.push_back(static_cast<int32_t>(t < cut ? 0 : cut));
        }
        Transformer::Saved saved = model.make_saved(arena, 1, T);
        const MicroBatch batch{.tokens = Tensor(tokens.data(), DType::i32, {1, T}),
                               .targets = Tensor(targets.data(), DType::i32, {1, T}),
                               .doc_start = has_mask ? Tensor(starts.data(), DType::i32, {1, T}) : Tensor{}};
        model.forward(ctx, batch, saved, 0);
        const float* all = saved.in_evaluation.losses.as<float>();
        losses.emplace_back(all, all + T);
      }
      const std::vector<float> first(losses[0].begin() + cut, losses[0].end());
      const std::vector<float> second(losses[1].begin() + cut, losses[1].end());
      EXPECT_EQ(first == second, has_mask) << name(compute);
    }
}

}  // namespace
}  // namespace ingot
