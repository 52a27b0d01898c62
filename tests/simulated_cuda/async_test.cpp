// Asynchronous steps: the device checks a step itself and the host collects its result one step later.
// Results and state are identical to those of synchronous steps.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <limits>
#include <utility>

#include "ingot/checkpoint/checkpoint.h"
#include "ingot/core/copy.h"
#include "ingot/core/staging.h"
#include "ingot/formats/metrics_log.h"
#include "tests/reference/error_of.h"
#include "tests/run/poisoned_checkpoint.h"
#include "tests/run/training_fixture.h"
#include "tests/train/small_training.h"

namespace ingot {
namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

RunConfig on_device(const std::vector<std::string>& keys) {
  std::vector<std::string> all = {"train.device=cuda", "model.context=8", "train.batch_size=2",
                                  "head.raw_ce_every=0", "optimizer.grad_clip=0.5"};
  all.insert(all.end(), keys.begin(), keys.end());
  return small_config(all);
}

std::vector<char> bytes_of(Trainer& trainer) {
  Staging staging;
  std::vector<char> bytes;
  const auto add = [&](const Tensor& t) {
    const Tensor host = staging.read(t, *trainer.layout().stream);
    bytes.insert(bytes.end(), static_cast<char*>(host.data), static_cast<char*>(host.data) + host.bytes());
  };
  for (const ParamShard& shard : trainer.params().shards())
    for (const Tensor& t : {shard.w, shard.tail, shard.compute, shard.is_overwritten ? Tensor{} : shard.grad})
      if (t) add(t);
  for (const Optimizer::State& state : trainer.state().optimizer.states()) add(state.tensor);
  return bytes;
}

void expect_same_step(const StepResult& got, const StepResult& want, int step) {
  EXPECT_EQ(got.loss, want.loss) << step;
  EXPECT_EQ(got.top1, want.top1) << step;
  EXPECT_EQ(got.grad_norm, want.grad_norm) << step;
  EXPECT_EQ(got.clip, want.clip) << step;
  EXPECT_EQ(got.tokens, want.tokens) << step;
  EXPECT_EQ(got.grad_correction, want.grad_correction) << step;
  EXPECT_EQ(got.step.scaler.scale, want.step.scaler.scale) << step;
  EXPECT_EQ(got.fp8.elements, want.fp8.elements) << step;
  EXPECT_EQ(got.fp8.saturated, want.fp8.saturated) << step;
  EXPECT_EQ(got.fp8.underflowed, want.fp8.underflowed) << step;
  EXPECT_EQ(got.fp8.amax, want.fp8.amax) << step;
}

// A course of steps in which the batch grows.
constexpr int kSteps = 6;
int64_t micros_of(int step) { return step < 2 ? 1 : 2; }
// Returns the inputs of a step. The window, if the model has one, grows.
StepInputs inputs_of(int step, const SmallTraining& training) {
  const int64_t most = training.trainer.layout().model->config().window;
  return {.lr = 3e-3 / (step + 1), .window = most > 0 ? std::min<int64_t>(most, 2 + step / 2 * 2) : 0};
}

// Submits the next step before it collects one. The first step of delayed scaling is synchronous.
std::vector<StepResult> collect_late(SmallTraining& training) {
  Trainer& trainer = training.trainer;
  std::vector<StepResult> results;
  size_t waited = 0;
  for (int i = 0; i < kSteps; ++i) {
    if (i == 0 && trainer.depth(inputs_of(i, training)) == 0) {
      results.push_back(gradients(trainer, training.loader, micros_of(i), inputs_of(i, training)));
      trainer.update(results.back());
      waited = 1;
      continue;
    }
    trainer.submit(training.loader,
                   {.micros = micros_of(i), .inputs = inputs_of(i, training), .is_asynchronous = true});
    if (std::cmp_greater(i, waited)) results.push_back(trainer.collect(training.loader));
  }
  results.push_back(trainer.collect(training.loader));
  return results;
}

// Compares asynchronous steps with synchronous steps that are launched kernel by kernel.
void expect_same_course(const std::vector<std::string>& keys, const std::vector<std::string>& async_keys) {
  std::vector<std::string> all = keys;
  all.push_back("train.grad_accum=2");
  SmallTraining waiting(on_device(all));
  all.insert(all.end(), async_keys.begin(), async_keys.end());
  SmallTraining late(on_device(all));
  const std::vector<StepResult> got = collect_late(late);
  ASSERT_EQ(got.size(), kSteps);
  for (int i = 0; i < kSteps; ++i) {
    spoil_old_gradients(waiting.trainer);
    const StepResult want = gradients(waiting.trainer, waiting.loader, micros_of(i), inputs_of(i, waiting));
    waiting.trainer.update(want);
    expect_same_step(got[static_cast<size_t>(i)], want, i);
  }
  EXPECT_EQ(late.trainer.state().steps_done, kSteps);
  EXPECT_EQ(late.loader.position(), waiting.loader.position());
  EXPECT_TRUE(bytes_of(late.trainer) == bytes_of(waiting.trainer));
}

using Keys = std::vector<std::string>;
const Keys kMuon = {
    R"(optimizer.group=[{roles = ["matrix"], kind = "muon", normuon = true, cautious_decay = true}])",
    "optimizer.grad_clip=0.2"};
const Keys kAdafactor = {"optimizer.kind=adafactor", "optimizer.grad_clip=0.2"};
// The loss scale grows after two steps and after four.
const Keys kF16 = {"precision.compute=f16", "precision.loss_scale_init=1024",
                   "precision.loss_scale_interval=2"};
const Keys kFp8 = {"precision.compute=bf16", "precision.fp8=tensorwise", "head.precision=fp8",
                   "model.vocab_multiple=16"};
const Keys kFp8Rowwise = {"precision.compute=bf16", "precision.fp8=rowwise", "head.precision=fp8",
                          "head.fp8_scaling=current", "model.vocab_multiple=16"};
const Keys kFp8Delayed = {"precision.compute=bf16", "precision.fp8=delayed", "precision.fp8_amax_history=3",
                          "precision.fp8_margin=1", "head.precision=fp8",    "model.vocab_multiple=16"};
const Keys kWholeSpeedRun = {"model.layers=4",           "model.norm=rmsnorm_weightless",
                             "model.qk_norm=true",       "model.mlp=relu2",
                             "model.tied=false",         "model.embedding_norm=true",
                             "model.input_mix=true",     "model.skips=true",
                             "model.value_embeddings=1", "model.mlp_only_layers=[2]",
                             "model.rope_dims=8",        "precision.compute=bf16"};
class AsyncVariants : public ::testing::TestWithParam<Keys> {};
TEST_P(AsyncVariants, EqualSynchronousSteps) { expect_same_course(GetParam(), {}); }
INSTANTIATE_TEST_SUITE_P(All, AsyncVariants,
                         ::testing::Values(Keys{"model.dropout=0.2", "data.document_mask=true"},
                                           Keys{"model.window=6"}, kWholeSpeedRun,
                                           Keys{"optimizer.kind=lion", "optimizer.grad_clip=0"},
                                           Keys{"optimizer.kind=adamw8bit", "model.ffn=256"}, kMuon,
                                           kAdafactor, kF16, kFp8, kFp8Rowwise, kFp8Delayed));

class GraphVariants : public ::testing::TestWithParam<Keys> {};
TEST_P(GraphVariants, EqualStepsSubmittedKernelByKernel) {
  expect_same_course(GetParam(), {"train.graph=true"});
}
INSTANTIATE_TEST_SUITE_P(All, GraphVariants,
                         ::testing::Values(Keys{"optimizer.ema=0.9"}, Keys{"model.dropout=0.2"},
                                           Keys{"model.window=6"}, kWholeSpeedRun,
                                           Keys{"model.dropout=0.2", "precision.compute=bf16",
                                                "activations.policy=block", "model.mlp=gelu_tanh"},
                                           Keys{"data.document_mask=true", "activations.policy=block"},
                                           Keys{"data.document_mask=true", "model.context=512"},
                                           Keys{"precision.compute=bf16", "precision.master=bf16_stochastic",
                                                "head.kind=recompute"},
                                           Keys{"model.kv_heads=0", "model.norm=layernorm",
                                                "model.positions=learned", "model.mlp=gelu_tanh",
                                                "model.bias=true", "precision.compute=bf16"},
                                           kMuon, kAdafactor, kF16, kFp8, kFp8Rowwise, kFp8Delayed));

TEST(Graphs, AreRefusedWhereStepsDiffer) {
  const auto said = [](Keys keys) {
    keys.insert(keys.end(), {"train.device=cuda", "train.graph=true"});
    return refusal(keys);
  };
  using ::testing::HasSubstr;
  EXPECT_EQ(said({}), "no error");
  EXPECT_THAT(refusal({"train.graph=true"}), HasSubstr("train.device must be cuda with train.graph = true"));
  EXPECT_EQ(said({"model.dropout=0.1"}), "no error");
  EXPECT_THAT(said({"guard.spike=skip"}), HasSubstr("guard.spike must be report"));
  EXPECT_EQ(said({"train.grad_accum=2", "parallel.dp=2"}), "no error");
  for (const char* axis : {"parallel.fsdp=2", "parallel.tp=2", "parallel.pp=2"})
    EXPECT_EQ(said({"train.grad_accum=2", axis}), "no error");
  EXPECT_EQ(said({"precision.compute=bf16", "precision.fp8=delayed"}), "no error");
  EXPECT_EQ(said({"precision.compute=bf16", "precision.fp8=delayed", "train.grad_accum=2", "parallel.dp=2"}),
            "no error");
  EXPECT_THAT(said({"precision.compute=f16", "precision.fp8=tensorwise"}),
              HasSubstr("precision.compute must be bf16 beside FP8"));
  EXPECT_THAT(refusal({"precision.tf32=true"}),
              HasSubstr("precision.tf32 = true is for train.device = cuda"));
}

TEST(AsyncSteps, AreRefusedWhereTheyCannotWork) {
  const auto can = [](const std::vector<std::string>& keys, const StepInputs& inputs) {
    return SmallTraining(on_device(keys)).trainer.depth(inputs) > 0;
  };
  EXPECT_TRUE(can({}, {}));
  EXPECT_FALSE(can({}, {.wants_stats = true}));
  EXPECT_FALSE(can({"head.raw_ce_every=1"}, {}));
  EXPECT_TRUE(can({"optimizer.kind=adafactor"}, {}));
  EXPECT_TRUE(can({"precision.compute=bf16", "precision.fp8=tensorwise"}, {}));
  EXPECT_FALSE(can({"precision.compute=bf16", "precision.fp8=delayed"}, {}));  // no amax has been recorded
  SmallTraining delayed(on_device({"precision.compute=bf16", "precision.fp8=delayed"}));
  delayed.steps(1);
  EXPECT_TRUE(delayed.trainer.depth({}) > 0);
  delayed.trainer.state().fp8.amaxes().back() = 0;
  EXPECT_TRUE(delayed.trainer.depth({}) == 0);
  EXPECT_FALSE(can({"precision.compute=f16", "precision.fp8=tensorwise"}, {}));
  EXPECT_FALSE(SmallTraining(small_config({"head.raw_ce_every=0"})).trainer.depth({}) > 0);
}

void submit_asynchronous(SmallTraining& training) {
  training.trainer.submit(training.loader, {.inputs = {.lr = 3e-3}, .is_asynchronous = true});
}

// A gradient is not finite. The device skips this step's update and the next step's, and the
// state is as it was before both.
TEST(AsyncSteps, NonFiniteStepsChangeNothing) {
  SmallTraining training(on_device({"optimizer.ema=0.9"}));
  Trainer& trainer = training.trainer;
  training.steps(2);
  const std::vector<char> before = bytes_of(trainer);
  const int64_t position = training.loader.position();
  Staging staging;
  const Tensor grad = trainer.params().shards().back().grad;
  const Tensor host = staging.read(grad, *trainer.layout().stream);
  host.as<float>()[0] = kNaN;
  copy(grad, host, *trainer.layout().stream);
  synchronize(*trainer.layout().stream);
  submit_asynchronous(training);
  submit_asynchronous(training);
  EXPECT_EQ(trainer.state().steps_done, 4);
  const StepResult result = trainer.collect(training.loader);
  EXPECT_TRUE(result.is_repeated);
  EXPECT_FALSE(result.is_updated);
  EXPECT_EQ(trainer.state().steps_done, 2);
  EXPECT_EQ(trainer.state().optimizer.t(), 2);
  // The NaN was a fault of the memory, so the repeated step gives the result of an undisturbed run.
  SmallTraining calm(on_device({"optimizer.ema=0.9"}));
  expect_same_step(result, calm.steps(3), 3);
  EXPECT_EQ(training.loader.position(), calm.loader.position());
  trainer.discard();
  EXPECT_TRUE(bytes_of(trainer) == before);
  // The second step in flight was dropped, so the next one to submit is the third step again.
  training.loader.seek(position);
  submit_asynchronous(training);
  const StepResult again = trainer.collect(training.loader);
  EXPECT_TRUE(again.is_updated);
  expect_same_step(again, result, 3);
  EXPECT_TRUE(bytes_of(trainer) == bytes_of(calm.trainer));
}

// As in ThatAreNotFiniteChangeNothing, a gradient is not finite when the step begins. No
// rule may let it into its state.
TEST(AsyncSteps, NonFiniteStepsLeaveNoTraceInAnyState) {
  for (const Keys& keys : {kMuon, kAdafactor, kFp8, kFp8Delayed}) {
    SmallTraining training(on_device(keys));
    Trainer& trainer = training.trainer;
    training.steps(2);
    const std::vector<char> before = bytes_of(trainer);
    Staging staging;
    for (const ParamShard& shard : trainer.params().shards()) {
      const Tensor host = staging.read(shard.grad, *trainer.layout().stream);
      host.as<float>()[0] = kNaN;
      copy(shard.grad, host, *trainer.layout().stream);
      synchronize(*trainer.layout().stream);
    }
    const int64_t position = training.loader.position();
    submit_asynchronous(training);
    EXPECT_TRUE(trainer.collect(training.loader).is_repeated);
    trainer.discard();
    EXPECT_TRUE(bytes_of(trainer) == before) << keys.front();
    training.loader.seek(position);
    SmallTraining calm(on_device(keys));
    calm.steps(2);
    for (int step = 3; step <= 4; ++step) {
      submit_asynchronous(training);
      expect_same_step(trainer.collect(training.loader), calm.steps(1), step);
    }
  }
}

// Steps whose gradients overflow in f16 are undone together with the steps after them, and repeated
// synchronously. The scale and the weights take the same course as in synchronous training.
TEST(AsyncSteps, StepsThatOverflowAreRepeatedWithALowerScale) {
  const auto config = on_device(
      {"precision.compute=f16", "precision.loss_scale_init=1073741824", "precision.loss_scale_interval=3"});
  SmallTraining waiting(config), late(config);
  std::vector<double> want, got;
  while (waiting.trainer.state().steps_done < 12) want.push_back(waiting.steps(1).step.scaler.scale);
  Trainer& trainer = late.trainer;
  int undone = 0, in_flight = 0;
  while (trainer.state().steps_done < 12 || in_flight > 0) {
    if (trainer.state().steps_done < 12) {
      submit_asynchronous(late);
      ++in_flight;
    }
    if (in_flight < 2 && trainer.state().steps_done < 12) continue;
    const StepResult result = trainer.collect(late.loader);
    --in_flight;
    got.push_back(result.step.scaler.scale);
    if (result.lowered_scale)
      trainer.discard();
    else
      trainer.update(result);
    if (!result.is_repeated) continue;
    ++undone;
    in_flight = 0;
  }
  EXPECT_EQ(got, want);
  EXPECT_GT(undone, 1);
  EXPECT_NE(std::ranges::adjacent_find(want, std::less{}), want.end());  // the scale also grows again
  EXPECT_TRUE(bytes_of(trainer) == bytes_of(waiting.trainer));
}

// Whole runs, in which some steps are synchronous (those with stats or checked losses)
// and the others asynchronous.
class AsyncRun : public TrainingTest {
 protected:
  void SetUp() override {
    TrainingTest::SetUp();
    std::string words = read_file(text);
    // The first nine tenths are the training split. Only they contain Z, so validation stays finite.
    for (size_t i = 1; i <= 450; ++i) words[i * words.size() / 510] = 'Z';
    write_file(text, words);
  }
  RunConfig on(Device device) const {
    RunConfig c = config(DType::f32);
    c.model = {.layers = 1, .heads = 2, .width = 16, .context = 8, .is_tied = false};
    c.model.norm = NormKind::kLayerNorm;
    c.data.tokenizer = "char";
    c.train.batch_size = 2;
    c.train.grad_accum = 1;
    c.train.steps = 18;
    c.train.log_every = 5;
    c.train.stats_every = 7;
    c.head.raw_ce_every = 11;
    c.eval.every = 8;
    c.eval.max_tokens = 32;
    c.checkpoint.every = 5;
    c.guard.max_skips = 20;
    c.train.device = device;
    return c;
  }
  // Holds what a run logged: the step and kind of each line in order, and the numbers of its training steps.
  struct Told {
    std::vector<std::string> lines;
    std::vector<double> losses, tokens, norms;
  };
  static Told told(const std::filesystem::path& run) {
    Told all;
    for (const MetricsRow& row : read_metrics(run / "metrics.jsonl")) {
      const std::string step = fmt::format("{}", row.number("step").value_or(-1));
      std::string event;
      for (const auto& [key, value] : row.fields)
        if (key == "event") event = std::get<std::string>(value);
      const bool is_step = row.number("grad_norm").has_value();
      all.lines.push_back(fmt::format("{} {}", step,
                                      is_step                  ? "step"
                                      : row.number("val_loss") ? "eval"
                                                               : event));
      if (!is_step) continue;
      all.losses.push_back(*row.number("loss"));
      all.norms.push_back(*row.number("grad_norm"));
      all.tokens.push_back(*row.number("tokens"));
    }
    return all;
  }
  void expect_same(const std::string& got, const std::string& want) {
    const Told a = told(folder / got), b = told(folder / want);
    EXPECT_EQ(a.lines, b.lines);
    EXPECT_EQ(a.tokens, b.tokens);
    ASSERT_EQ(a.losses.size(), b.losses.size());
    for (size_t i = 0; i < a.losses.size(); ++i) {
      EXPECT_NEAR(a.losses[i], b.losses[i], 1e-4 * b.losses[i]) << i;
      EXPECT_NEAR(a.norms[i], b.norms[i], 2e-3 * b.norms[i]) << i;
    }
  }
};

TEST_F(AsyncRun, ReportsEveryStepUnderItsOwnNumber) {
  for (const Device device : {Device::kCpu, Device::kCuda}) {
    RunConfig c = on(device);
    const std::filesystem::path run = folder / (device == Device::kCpu ? "cpu" : "device");
    c.train.stop_at = 10;
    EXPECT_EQ(train(c, run).status, TrainOutcome::Status::kStopped);
    EXPECT_EQ(told(run).losses.size(), 10u);
    c.train.stop_at = 0;
    EXPECT_EQ(train(c, run, true).steps, 18);
  }
  expect_same("device", "cpu");
  EXPECT_EQ(told(folder / "device").losses.size(), 18u);
}

TEST_F(AsyncRun, FindsALossScaleAndDoesNotCountStepsThatOverflow) {
  Told told_of[2];
  for (const Device device : {Device::kCpu, Device::kCuda}) {
    RunConfig c = on(device);
    c.precision.compute = DType::f16;
    c.precision.loss_scale.init = 0x1p26;
    c.precision.loss_scale.growth_interval = 5;
    said.clear();
    const std::filesystem::path run = folder / (device == Device::kCpu ? "cpu" : "device");
    EXPECT_EQ(train(c, run).steps, 18);
    told_of[device == Device::kCpu ? 0 : 1] = told(run);
    EXPECT_THAT(said, ::testing::Not(::testing::HasSubstr("made again")));
  }
  EXPECT_EQ(told_of[1].lines, told_of[0].lines);
  EXPECT_GT(told_of[0].lines.size(), 18u + 3u);  // steps, evaluations, overflows
}

TEST_F(AsyncRun, ASignalEndsItAfterThePendingSteps) {
  RunConfig c = on(Device::kCuda);
  c.train.steps = 8;
  c.train.log_every = 1;
  c.train.stats_every = 100;
  c.head.raw_ce_every = 0;
  c.eval.every = c.checkpoint.every = 100;
  TrainOutcome cut;
  {
    RunFolder run(folder / "cut", false);
    std::atomic<bool> is_interrupted = false;
    int steps_told = 0;
    Console console(
        [&](std::string_view line) {
          if (line.find("loss") != line.npos) is_interrupted = ++steps_told >= 3;
        },
        0);
    Mesh alone = Mesh::alone();
    cut = run_training(c, run, false, console, is_interrupted, alone);
  }
  EXPECT_EQ(cut.status, TrainOutcome::Status::kInterrupted);
  EXPECT_EQ(cut.steps, 4);  // one more step was in flight
  EXPECT_EQ(told(folder / "cut").losses.size(), 4u);
  const TrainOutcome whole = train(c, folder / "whole");
  expect_equal_files(train(c, folder / "cut", true).checkpoint, whole.checkpoint);
}

TEST_F(AsyncRun, EachPolicyTreatsNonFiniteBatchesAsOnTheCpu) {
  RunConfig c = on(Device::kCpu);
  c.train.stop_at = 5;
  const TrainOutcome five = train(c, folder / "cpu");
  save_poisoned(c, five.checkpoint, folder / "cpu");
  std::string want, warned;  // the CPU's last error; everything that the device's runs said
  for (const char* policy : {"stop", "skip", "rollback"})
    for (const Device device : {Device::kCpu, Device::kCuda}) {
      const std::string name = fmt::format("{}-{}", policy, device == Device::kCpu ? "cpu" : "device");
      std::filesystem::copy(folder / "cpu", folder / name, std::filesystem::copy_options::recursive);
      RunConfig go_on = on(device);
      go_on.guard.non_finite = std::string(policy) == "stop"   ? GuardPolicy::kStop
                               : std::string(policy) == "skip" ? GuardPolicy::kSkip
                                                               : GuardPolicy::kRollback;
      said.clear();
      const std::string error = error_of([&] { train(go_on, folder / name, true); });
      EXPECT_EQ(error == "no error", std::string(policy) != "stop") << name << ": " << error;
      if (device == Device::kCpu) {
        want = error;
        continue;
      }
      EXPECT_EQ(error, want);
      warned += said;
    }
  EXPECT_THAT(warned, ::testing::HasSubstr("are not finite (read one step later); it changed nothing"));
  for (const std::string policy : {"stop", "skip", "rollback"})
    expect_same(policy + "-device", policy + "-cpu");
}

}  // namespace
}  // namespace ingot
