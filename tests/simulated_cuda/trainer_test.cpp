// The whole trainer on a simulated CUDA device (cuda_runtime.h) follows the trainer on the CPU.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "ingot/core/copy.h"
#include "ingot/core/staging.h"
#include "ingot/profile/bench_head.h"
#include "tests/reference/numeric.h"
#include "tests/train/gradient_tolerance.h"
#include "tests/train/small_training.h"

namespace ingot::test {
namespace {

using Keys = std::vector<std::string>;

Keys operator+(Keys a, const Keys& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

// Both models are small enough for fibers, and together they have every kind of layer.
const Keys kLlama = {"model.layers=2",      "model.width=32",         "model.heads=4",
                     "model.kv_heads=2",    "model.context=8",        "model.vocab=61",
                     "data.tokenizer=char", "model.vocab_multiple=8", "train.batch_size=1",
                     "head.raw_ce_every=4", "head.raw_ce_tokens=8"};
const Keys kGpt2 = kLlama + Keys{"model.kv_heads=0", "model.norm=layernorm", "model.positions=learned",
                                 "model.mlp=gelu_tanh", "model.bias=true"};
const Keys kOnDevice = {"train.device=cuda"};

RunConfig configured(const Keys& keys) {
  ConfigBuilder builder;
  for (const std::string& key : keys)  // a key is an override or a TOML table
    if (key.starts_with("[[")) builder.add_toml(key, "table");
  for (const std::string& key : keys)
    if (!key.starts_with("[[")) builder.add_override(key);
  return builder.build();
}

struct Course {
  std::vector<double> losses, norms, top1;
  RawLoss raw;                           // of the last step that computed it
  std::vector<ParamStats> first, stats;  // of the first and the last step
  double evaluated = 0;
};

Course train(const Keys& keys, int steps) {
  const RunConfig config = configured(keys);
  SmallTraining training(config);
  Course course;
  for (int i = 0; i < steps; ++i) {
    const StepResult result =
        training.trainer.step(training.loader, {.lr = 3e-3, .wants_stats = i == 0 || i + 1 == steps});
    if (i == 0) course.first = training.trainer.stats();
    spoil_old_gradients(training.trainer);
    course.losses.push_back(result.loss);
    course.norms.push_back(result.grad_norm);
    course.top1.push_back(result.top1);
    if (result.raw.tokens > 0) course.raw = result.raw;
  }
  course.stats = training.trainer.stats();
  course.evaluated = training.trainer.evaluate(training.source, 16).loss;
  return course;
}

void expect_near(double got, double want, double relative, const std::string& what) {
  EXPECT_NEAR(got, want, relative * std::abs(want)) << what;
}

// Expects the same course on both devices for one configuration. The gradients of the first step are those of
// equal weights, so each has the tolerance of a single gradient.
void expect_same_course(const Keys& keys, int steps, const std::string& name) {
  const RunConfig config = configured(keys);
  const Course want = train(keys, steps), got = train(keys + kOnDevice, steps);
  double fall = std::abs(want.evaluated - want.losses[0]);
  for (const double loss : want.losses) fall = std::max(fall, std::abs(loss - want.losses[0]));
  const double of_loss = steps > 5 ? later_loss_tolerance(config, fall) : loss_tolerance(config, fall),
               of_gradient = gradient_tolerance(config), of_norm = later_norm_tolerance(config);
  for (size_t i = 0; i < want.losses.size(); ++i) {
    EXPECT_NEAR(got.losses[i], want.losses[i], of_loss) << fmt::format("{}: loss of step {}", name, i + 1);
    expect_near(got.norms[i], want.norms[i], i == 0 ? of_gradient : of_norm,
                fmt::format("{}: norm of step {}", name, i + 1));
    EXPECT_NEAR(got.top1[i], want.top1[i], of_gradient > 1e-3 ? 0.26 : 0.07) << name;
  }
  EXPECT_EQ(got.raw.tokens, want.raw.tokens) << name;
  EXPECT_NEAR(got.raw.ce, want.raw.ce, of_loss) << name << ": checked loss";
  EXPECT_NEAR(got.raw.objective, want.raw.objective, of_loss) << name << ": checked objective";
  EXPECT_NEAR(got.raw.trained, want.raw.trained, of_loss) << name << ": checked loss as trained";
  EXPECT_NEAR(got.evaluated, want.evaluated, of_loss) << name << ": evaluation";
  ASSERT_EQ(got.stats.size(), want.stats.size());
  for (size_t i = 0; i < want.stats.size(); ++i) {
    const ParamStats &first = want.first[i], &last = want.stats[i];
    const bool is_scalar = first.name.find("mix.") != std::string::npos;
    // In 16 bits the roundings are as large as a scalar's gradient (kScalarCancellation).
    if (is_scalar && config.precision.compute != DType::f32) continue;
    const double of_scalar = is_scalar ? kScalarCancellation : 1;
    expect_near(got.first[i].grad_norm, first.grad_norm, of_scalar * of_gradient,
                first.name + ": first gradient");
    expect_near(got.stats[i].grad_norm, last.grad_norm, of_scalar * of_norm, last.name + ": gradient");
    // A bias is the sum of its updates. Those of the keys are rounding alone, since a constant in all scores
    // of a query changes nothing: a third of the elements move at random, and k = 2.8 for the whole.
    const double of_moves = 2 * of_scalar * of_norm;
    expect_near(got.stats[i].weight_norm, last.weight_norm, of_moves, last.name + ": weights");
    expect_near(got.stats[i].update_norm, last.update_norm, of_moves, last.name + ": update");
  }
}

TEST(SimulatedTrainer, LlamaInF32MatchesTheCpu) { expect_same_course(kLlama, 20, "llama"); }
TEST(SimulatedTrainer, Gpt2InF32MatchesTheCpu) { expect_same_course(kGpt2, 20, "gpt-2"); }
TEST(SimulatedTrainer, LlamaInBf16MatchesTheCpu) {
  expect_same_course(kLlama + Keys{"precision.compute=bf16"}, 5, "llama in bf16");
}
TEST(SimulatedTrainer, LlamaInF16MatchesTheCpu) {
  expect_same_course(kLlama + Keys{"precision.compute=f16", "train.grad_accum=2"}, 5, "llama in f16");
}
TEST(SimulatedTrainer, Gpt2InBf16MatchesTheCpu) {
  expect_same_course(kGpt2 + Keys{"precision.compute=bf16"}, 5, "gpt-2 in bf16");
}

struct Variant {
  std::string name;
  Keys keys;
};

class SimulatedVariants : public ::testing::TestWithParam<Variant> {};
TEST_P(SimulatedVariants, MatchTheCpu) {
  expect_same_course(kLlama + Keys{"model.layers=1"} + GetParam().keys, 3, GetParam().name);
}

const Variant kVariants[] = {
    {"dense_head", {"head.kind=dense"}},
    {"recompute_head", {"head.kind=recompute", "head.z_loss=1e-3", "head.label_smoothing=0.1"}},
    {"capped_recompute_head", {"head.kind=recompute", "model.cap=tanh", "precision.compute=bf16"}},
    {"kahan", {"head.accumulation=kahan"}},
    {"objective", {"head.z_loss=1e-3", "head.label_smoothing=0.1"}},
    {"tanh_cap", {"model.cap=tanh"}},
    {"sigmoid_cap", {"model.cap=sigmoid", "model.cap_a=20"}},
    {"f32_head", {"precision.compute=bf16", "head.precision=f32"}},
    {"untied", {"model.tied=false", "model.projection_init=zero"}},
    {"qk_norm", {"model.qk_norm=true", "model.norm=rmsnorm_weightless", "model.mlp=relu2"}},
    {"qk_norm_gain", {"model.qk_norm=true", "model.qk_norm_gain=true"}},
    {"qk_norm_gain_in_bf16",
     {"model.qk_norm=true", "model.qk_norm_gain=true", "precision.compute=bf16", "train.batch_size=2"}},
    {"olmo2",
     {"model.qk_norm=true", "model.qk_norm_over=width", "model.qk_norm_gain=true", "model.norm_place=after"}},
    {"norms_after_in_bf16",
     {"model.norm_place=after", "model.norm=layernorm", "model.bias=true", "precision.compute=bf16"}},
    {"gelu", {"model.mlp=gelu_exact", "model.bias=true", "model.norm=layernorm"}},
    {"f16", {"precision.compute=f16", "model.mlp=gelu_tanh", "model.bias=true", "model.cap=tanh"}},
    {"f16_recompute_head", {"precision.compute=f16", "head.kind=recompute", "model.qk_norm=true"}},
    {"f16_fp8",
     {"precision.compute=f16", "precision.fp8=tensorwise", "head.precision=fp8", "train.batch_size=2",
      "model.vocab_multiple=16"}},
    {"bf16_loss", {"precision.compute=bf16", "head.loss_dtype=bf16", "head.raw_ce_every=0"}},
    {"bf16_logits", {"precision.compute=bf16", "head.loss_dtype=bf16_logits", "head.kind=dense"}},
    {"bf16_logits_in_chunks", {"precision.compute=bf16", "head.loss_dtype=bf16_logits"}},
    {"window", {"model.window=5", "data.document_mask=true"}},
    {"fp8", {"precision.compute=bf16", "precision.fp8=tensorwise", "train.batch_size=2"}},
    {"fp8_gpt2",
     {"precision.compute=bf16", "precision.fp8=tensorwise", "train.batch_size=2", "model.norm=layernorm",
      "model.positions=learned", "model.mlp=gelu_tanh", "model.bias=true"}},
    {"fp8_accumulation",
     {"precision.compute=bf16", "precision.fp8=delayed", "train.batch_size=2", "train.grad_accum=3"}},
    {"fp8_blocks",
     {"precision.compute=bf16", "precision.fp8=tensorwise", "train.batch_size=2",
      "activations.policy=block"}},
    {"fp8_delayed",
     {"precision.compute=bf16", "precision.fp8=delayed", "train.batch_size=2",
      "precision.fp8_amax_history=2"}},
    {"fp8_rowwise", {"precision.compute=bf16", "precision.fp8=rowwise", "train.batch_size=2"}},
    {"fp8_rowwise_gw_hp", {"precision.compute=bf16", "precision.fp8=rowwise_gw_hp", "train.batch_size=2"}},
    {"fp8_head",
     {"precision.compute=bf16", "head.precision=fp8", "train.batch_size=2", "model.vocab_multiple=16"}},
    {"fp8_recompute_head",
     {"precision.compute=bf16", "head.precision=fp8", "head.kind=recompute", "head.fp8_scaling=current",
      "model.cap=tanh", "train.batch_size=2", "model.vocab_multiple=16"}},
    {"fp8_all",
     {"precision.compute=bf16", "precision.fp8=tensorwise", "head.precision=fp8", "model.cap=sigmoid",
      "head.accumulation=kahan", "train.batch_size=2", "train.grad_accum=2", "model.vocab_multiple=16"}},
    {"whole_speedrun",
     {"model.layers=4", "model.norm=rmsnorm_weightless", "model.qk_norm=true", "model.mlp=relu2",
      "model.embedding_norm=true", "model.input_mix=true", "model.skips=true", "model.value_embeddings=1",
      "model.mlp_only_layers=[2]", "model.rope_dims=4"}},
    {"whole_speedrun_in_bf16",
     {"model.layers=4", "model.qk_norm=true", "model.mlp=relu2", "model.embedding_norm=true",
      "model.input_mix=true", "model.skips=true", "model.value_embeddings=1", "precision.compute=bf16",
      "activations.policy=block"}},
    {"whole_speedrun_in_fp8",
     {"model.layers=4", "model.qk_norm=true", "model.mlp=relu2", "model.embedding_norm=true",
      "model.input_mix=true", "model.skips=true", "model.value_embeddings=1", "model.mlp_only_layers=[2]",
      "precision.compute=bf16", "precision.fp8=tensorwise", "train.batch_size=2"}},
    {"gpt_j",
     {"model.parallel_residual=true", "model.rope_dims=4", "model.norm=layernorm", "model.bias=true"}},
    {"adapters", {"lora.rank=4", "train.init_from=base", "model.qk_norm=true", "model.qk_norm_gain=true"}},
    {"adapters_of_the_last_block",
     {"model.layers=3", "lora.rank=4", "lora.targets=blocks.2.*", "train.init_from=base",
      "activations.policy=block", "head.accumulation=kahan"}},
    {"adapters_of_gpt2_in_bf16",
     {"lora.rank=8", "train.init_from=base", "precision.compute=bf16", "model.norm=layernorm",
      "model.positions=learned", "model.mlp=gelu_tanh", "model.bias=true", "train.batch_size=2"}},
    {"adapters_of_gpt2s_mlp",
     {"lora.rank=8", "lora.targets=*.down", "train.init_from=base", "precision.compute=bf16",
      "model.norm=layernorm", "model.positions=learned", "model.mlp=gelu_tanh", "model.bias=true"}},
    {"adapters_of_fp8",
     {"lora.rank=8", "train.init_from=base", "precision.compute=bf16", "precision.fp8=tensorwise",
      "head.precision=fp8", "train.batch_size=2", "model.vocab_multiple=16"}},
    {"adapters_of_fp8_rowwise",
     {"lora.rank=8", "train.init_from=base", "precision.compute=bf16", "precision.fp8=rowwise_gw_hp",
      "train.batch_size=2"}},
    {"dropout", {"model.dropout=0.2"}},
    {"accumulation", {"train.grad_accum=3", "optimizer.grad_clip=0.1"}},
    {"documents", {"data.document_mask=true"}},
    {"keep_all", {"activations.policy=none"}},
    {"block", {"activations.policy=block", "model.layers=2"}},
    {"sqrt",
     {"activations.policy=sqrt", "model.layers=3",
      "activations.parts=['norms', 'activation', 'mlp', 'attention']"}},
    {"sgd", {"optimizer.kind=sgd"}},
    {"momentum", {"optimizer.kind=momentum"}},
    {"adam", {"optimizer.kind=adam"}},
    {"lion", {"optimizer.kind=lion"}},
    {"adamw8bit", {"optimizer.kind=adamw8bit", "model.ffn=256"}},
    {"adafactor", {"optimizer.kind=adafactor"}},
    {"muon", {"[[optimizer.group]]\nroles = [\"matrix\"]\nkind = \"muon\"\nnewton_schulz_dtype = \"f32\"\n"}},
    {"normuon_in_bf16",
     {"[[optimizer.group]]\nroles = [\"matrix\"]\nkind = \"muon\"\nnormuon = true\ncautious_decay = true\n",
      "precision.compute=bf16"}},
    {"average", {"optimizer.ema=0.9"}},
    {"tail", {"precision.compute=bf16", "precision.master=bf16_tail"}},
    {"stochastic", {"precision.compute=bf16", "precision.master=bf16_stochastic"}},
};
INSTANTIATE_TEST_SUITE_P(All, SimulatedVariants, ::testing::ValuesIn(kVariants),
                         [](const auto& info) { return info.param.name; });

// The initial weights are bit-identical on both devices.
TEST(SimulatedTrainer, StartsFromTheSameWeights) {
  SmallTraining host(configured(kLlama)), device(configured(kLlama + kOnDevice));
  Staging staging;
  for (int id = 0; id < static_cast<int>(host.trainer.layout().model->params().specs().size()); ++id) {
    const Tensor want = host.trainer.params().master(id);
    const Tensor got = staging.read(device.trainer.params().master(id), *device.trainer.layout().stream);
    EXPECT_EQ(std::memcmp(got.data, want.data, want.bytes()), 0) << id;
  }
}

// An amax that an op raises after the cast would be counted for the next micro-batch.
TEST(SimulatedTrainer, EveryRaisedAmaxIsTakenByItsCast) {
  const Keys fp8 = {"precision.compute=bf16", "precision.fp8=tensorwise", "train.batch_size=2"};
  for (const Keys& model : {kLlama, kGpt2, kLlama + Keys{"model.norm_place=after", "model.bias=true"},
                            kGpt2 + Keys{"model.dropout=0.1", "activations.policy=block"}}) {
    SmallTraining training(configured(model + fp8 + kOnDevice));
    training.steps(1);
    Fp8State& state = training.trainer.state().fp8;
    Staging staging;
    for (int t = 0; t < std::ssize(state.entries()); ++t) {
      const Tensor left = staging.read(state.next_amax(t), *training.trainer.layout().stream);
      EXPECT_EQ(left.as<float>()[0], 0) << state.entries()[static_cast<size_t>(t)].name;
    }
  }
}

// The device reports an infinite weight at the same place as the CPU, and nothing is updated.
TEST(SimulatedTrainer, FindsNonFiniteValues) {
  for (const char* parameter : {"blocks.1.mlp.down.weight", "embedding.weight"}) {
    std::vector<std::string> said;
    for (const Keys& where : {Keys{}, kOnDevice}) {
      SmallTraining training(configured(kGpt2 + Keys{"train.grad_accum=2"} + where));
      Trainer& trainer = training.trainer;
      Staging staging;
      const auto& specs = trainer.layout().model->params().specs();
      for (size_t id = 0; id < specs.size(); ++id) {
        if (specs[id].name != parameter) continue;
        const Tensor w = trainer.params().master(static_cast<int>(id));
        const Tensor host = staging.read(w, *trainer.layout().stream);
        host.as<float>()[0] = std::numeric_limits<float>::infinity();
        copy(w, host, *trainer.layout().stream);
        synchronize(*trainer.layout().stream);
      }
      const StepResult result = gradients(trainer, training.loader, 2);
      ASSERT_TRUE(result.non_finite);
      said.push_back(result.non_finite->text());
      trainer.discard();
    }
    EXPECT_EQ(said[0], said[1]);
  }
}

// The scale falls in the same steps on both devices until the gradients fit. A step that overflows is not
// counted and changes no weight.
TEST(SimulatedTrainer, AnOverflowInF16LowersOnlyTheScale) {
  const Keys keys = kLlama + Keys{"precision.compute=f16", "train.grad_accum=2", "optimizer.ema=0.9",
                                  "precision.loss_scale_init=268435456", "precision.loss_scale_interval=2"};
  SmallTraining host(configured(keys)), device(configured(keys + kOnDevice));
  Staging staging;
  const auto first_weights = [&] {
    const Tensor w = staging.read(device.trainer.params().master(0), *device.trainer.layout().stream);
    return std::vector<float>(w.as<float>(), w.as<float>() + w.elements());
  };
  const std::vector<float> before = first_weights();
  int overflows = 0;
  double first_loss = 0;
  for (int i = 0; i < 24; ++i) {
    const StepResult want = host.steps(1), got = device.steps(1);
    ASSERT_EQ(got.step.scaler.scale, want.step.scaler.scale) << i;
    ASSERT_EQ(got.lowered_scale, want.lowered_scale) << i;
    if (got.lowered_scale) ++overflows;
    if (overflows == i + 1) {  // no step has fitted yet
      EXPECT_EQ(first_weights(), before);
    }
    EXPECT_EQ(device.trainer.state().steps_done, i + 1 - overflows);
    EXPECT_EQ(device.trainer.state().optimizer.t(), i + 1 - overflows);
    first_loss = i == 0 ? want.loss : first_loss;
    EXPECT_NEAR(got.loss, want.loss, later_loss_tolerance(configured(keys), std::abs(want.loss - first_loss)))
        << i;
    EXPECT_EQ(device.trainer.state().loss_scaler.state().good_steps,
              host.trainer.state().loss_scaler.state().good_steps);
  }
  EXPECT_GT(overflows, 2);
  EXPECT_LT(overflows, 20);
}

// The device measures its own block. Whatever plan it chooses fits the budget and computes the same losses.
TEST(SimulatedTrainer, MeasuresWhichActivationsToRecompute) {
  const auto bytes = [](const Keys& keys) {
    const RunConfig config = configured(keys);
    const Trainer trainer(config, parallelize(config));
    for (const Trainer::ArenaUse& use : trainer.arenas())
      if (use.name == "activations") return static_cast<int64_t>(use.bytes);
    return int64_t{0};
  };
  const Keys three = kLlama + Keys{"model.layers=3"};
  const int64_t most = bytes(three + kOnDevice + Keys{"activations.policy=none"});
  for (const int64_t budget : {most, most * 7 / 10}) {
    const Keys automatic =
        three + Keys{"activations.policy=auto", fmt::format("activations.budget={}", budget)};
    EXPECT_LE(bytes(automatic + kOnDevice), budget);
    const Course want = train(three, 3), got = train(automatic + kOnDevice, 3);
    for (size_t i = 0; i < want.losses.size(); ++i)
      EXPECT_NEAR(got.losses[i], want.losses[i], loss_tolerance(configured(three), 1)) << i;
  }
}

// Every kind of head gives the CPU's loss in every precision.
TEST(SimulatedTrainer, TimesItsHeads) {
  for (const HeadPrecision precision : {HeadPrecision::kF32, HeadPrecision::kBf16, HeadPrecision::kFp8}) {
    HeadBenchOptions options{
        .tokens = 32, .vocab = 64, .width = 16, .precision = precision, .repetitions = 1};
    const std::vector<HeadBenchRow> want = bench_head(options);
    options.device = Device::kCuda;
    const std::vector<HeadBenchRow> got = bench_head(options);
    ASSERT_EQ(got.size(), 3u);
    for (size_t i = 0; i < got.size(); ++i) {
      expect_near(got[i].loss, want[i].loss, unit_roundoff(DType::bf16),  // logits round the other way
                  fmt::format("{} {}", got[i].kind, static_cast<int>(precision)));
      EXPECT_GT(got[i].ms, 0);
      EXPECT_GT(got[i].scratch_bytes, 0u);
    }
  }
}

TEST(SimulatedTrainer, RefusesOptionsWithoutAKernel) {
  const auto said = [](const Keys& keys) { return refusal(kLlama + kOnDevice + keys); };
  using ::testing::HasSubstr;
  EXPECT_EQ(said({}), "no error");
  EXPECT_THAT(said({"head.kind=recompute", "head.filter=1e-4"}), HasSubstr("head.filter must be 0"));
  EXPECT_THAT(said({"head.precision=fp8", "model.vocab_multiple=16"}),
              HasSubstr("train.batch_size * model.context must be a multiple of 16 for head.precision"));
  EXPECT_THAT(said({"head.precision=fp8", "train.batch_size=2"}),
              HasSubstr("model.vocab_multiple must be a multiple of 16"));
  const Keys two = {"train.grad_accum=2"};
  for (const char* layout : {"parallel.dp=2", "parallel.fsdp=2", "parallel.tp=2", "parallel.pp=2"})
    EXPECT_EQ(said(two + Keys{layout}), "no error");
  EXPECT_EQ(said(two + Keys{"parallel.dp=2", "parallel.payload=f16", "parallel.error_feedback=true"}),
            "no error");
  for (const char* rule : {"adafactor", "adamw8bit", "muon"})
    for (const char* layout : {"parallel.fsdp=2", "parallel.tp=2", "parallel.pp=2"})
      EXPECT_EQ(said(two + Keys{layout, std::string("optimizer.kind=") + rule}), "no error")
          << layout << ", " << rule;
}

}  // namespace
}  // namespace ingot::test
