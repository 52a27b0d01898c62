// Tests that techniques compose: a random matrix of configurations trains, and each run ends at the loss
// of its f32 twin, within the tolerance of its shortest format.
#include <cmath>
#include <string>
#include <vector>

#include "ingot/config/config_toml.h"
#include "ingot/core/parallel.h"
#include "ingot/formats/metrics_log.h"
#include "ingot/train/loss_watch.h"
#include "tests/run/training_fixture.h"

namespace ingot {
namespace {

// A choice of one technique, as --set assignments, or as TOML if the text begins with a bracket.
struct Choice {
  std::vector<std::string> own;
  double tolerance = 0;                // relative tolerance of the validation loss after the run
  std::vector<std::string> twin = {};  // the choice of the f32 twin; if empty, the axis decides
};
struct Axis {
  const char* name;
  std::vector<Choice> choices;
  bool is_precision;  // if true, the twin takes the first choice of the axis, otherwise the same one
};

// 20 steps lower the loss by some 2 nats of 5.7. The rounding of a format moves it by a small fraction of
// one ulp of the format, because many roundings in either direction add up.
constexpr double kBf16 = 0x1p-8, kF16 = 0x1p-11, kE4m3 = 0x1p-4 / 2;

const std::vector<Axis>& axes() {
  static const std::vector<Axis> all = {
      {"model",
       {{{"model.norm=layernorm", "model.positions=learned", "model.mlp=gelu_tanh", "model.bias=true",
          "model.kv_heads=4", "model.tied=true"}},
        {{"model.norm=rmsnorm", "model.positions=rope", "model.mlp=swiglu", "model.kv_heads=2",
          "model.tied=false"}},
        {{"model.norm=rmsnorm_weightless", "model.positions=rope", "model.mlp=relu2", "model.qk_norm=true",
          "model.tied=false"}}},
       false},
      {"optimizer",
       {{{"optimizer.kind=adamw", "optimizer.lr=3e-3"}},
        {{"optimizer.kind=sgd", "optimizer.lr=0.3"}},
        {{"optimizer.kind=momentum", "optimizer.lr=0.05", "optimizer.nesterov=true"}},
        {{"optimizer.kind=adam", "optimizer.lr=3e-3"}},
        {{"optimizer.kind=adafactor", "optimizer.lr=1e-2", "optimizer.relative_step=false"}},
        {{"optimizer.kind=lion", "optimizer.lr=5e-4"}},
        {{"optimizer.lr=3e-3", "[[optimizer.group]]\nroles = [\"matrix\"]\nkind = \"muon\"\nlr = 0.02\n"},
         kBf16,
         {"optimizer.lr=3e-3",
          "[[optimizer.group]]\nroles = [\"matrix\"]\nkind = \"muon\"\nlr = 0.02\nnewton_schulz_dtype = "
          "\"f32\"\n"}},
        {{"optimizer.kind=adamw8bit", "optimizer.lr=3e-3"},
         kBf16,
         {"optimizer.kind=adamw", "optimizer.lr=3e-3"}}},
       false},
      {"schedule",
       {{{"schedule.kind=cosine"}},
        {{"schedule.kind=constant"}},
        {{"schedule.kind=linear"}},
        {{"schedule.kind=wsd", "schedule.cooldown_curve=1-sqrt"}}},
       false},
      {"compute",
       {{{"precision.compute=f32"}}, {{"precision.compute=bf16"}, kBf16}, {{"precision.compute=f16"}, kF16}},
       true},
      {"fp8 linears",
       {{{"precision.fp8=none"}},
        {{"precision.fp8=none"}},
        {{"precision.fp8=tensorwise"}, kE4m3},
        {{"precision.fp8=rowwise"}, kE4m3},
        {{"precision.fp8=rowwise_gw_hp"}, kE4m3},
        {{"precision.fp8=delayed"}, kE4m3}},
       true},
      {"head precision",
       {{{"head.precision=compute"}},
        {{"head.precision=f32"}},
        {{"head.precision=bf16"}, kBf16},
        {{"head.precision=fp8"}, kE4m3},
        {{"head.precision=fp8", "head.fp8_scaling=current"}, kE4m3}},
       true},
      {"head kind", {{{"head.kind=chunked"}}, {{"head.kind=dense"}}, {{"head.kind=recompute"}}}, false},
      {"accumulation", {{{"head.accumulation=f32"}}, {{"head.accumulation=kahan"}}}, false},
      {"cap",
       {{{"model.cap=none"}},
        {{"model.cap=tanh", "model.cap_a=15"}},
        {{"model.cap=sigmoid", "model.cap_a=30", "model.cap_b=0", "model.cap_c=7.5"}}},
       false},
      {"objective", {{{}}, {{"head.z_loss=1e-4"}}, {{"head.label_smoothing=0.1"}}}, false},
      {"activations",
       {{{"activations.policy=none"}},
        {{"activations.policy=block"}},
        {{"activations.policy=sqrt"}},
        {{"activations.policy=selective", "activations.parts=[\"attention\", \"mlp\"]"}}},
       false},
      {"dropout", {{{}}, {{"model.dropout=0.1"}}}, false},
      {"documents", {{{}}, {{"data.document_mask=true"}}}, false},
      {"batches", {{{"train.grad_accum=1"}}, {{"train.grad_accum=2", "train.batch_size=2"}}}, false},
  };
  return all;
}

class CompositionTest : public TrainingTest, public ::testing::WithParamInterface<int> {
 protected:
  // Returns the validation loss after 20 steps with the base configuration and the assignments.
  double loss(const std::vector<std::string>& assignments, const std::string& run) {
    ConfigBuilder builder;
    builder.add_toml(
        "[model]\nlayers = 2\nheads = 4\nwidth = 32\nffn = 64\ncontext = 24\n"
        "[data]\ntokenizer = \"bpe\"\ntokenizer_vocab = 300\n"
        "[train]\nsteps = 20\nbatch_size = 4\nthreads = 2\n[schedule]\nwarmup_steps = 3\n"
        "[eval]\nevery = 0\n[sample]\ncount = 0\n[head]\nraw_ce_every = 1\n",
        "base");
    builder.add_texts("data.train", {text.string()}, "--data");
    for (const std::string& text : assignments) {
      if (text.front() == '[')
        builder.add_toml(text, "groups");
      else
        builder.add_override(text);
    }
    const RunConfig config = builder.build();
    const double loss = train(config, folder / run).final_eval.loss;
    expect_no_alarm(config, folder / run);
    return loss;
  }

  // Expects that the checks of the loss stay well inside what the watch accepts as rounding.
  static void expect_no_alarm(const RunConfig& config, const std::filesystem::path& run) {
    const LossBiasLimits limits = loss_bias_limits(config);
    int checks = 0;
    for (const MetricsRow& row : read_metrics(run / "metrics.jsonl")) {
      const double loss = std::max(1.0, row.number("raw_ce_fp32").value_or(1));
      EXPECT_LT(std::abs(row.number("raw_ce_gap").value_or(0)), limits.head * loss / 2);
      EXPECT_LT(std::abs(row.number("raw_forward_gap").value_or(0)), limits.forward * loss / 2);
      checks += row.number("raw_ce_gap").has_value();
    }
    EXPECT_EQ(checks, config.train.steps);
  }
};

TEST_P(CompositionTest, FollowsTheF32Run) {
  const RandomKey key{
      .seed = 20, .purpose = Purpose::kSample, .stream = 0, .step = static_cast<uint64_t>(GetParam())};
  std::vector<std::string> own, twin;
  std::string story;
  double tolerance = 0x1p-16;  // f32: 20 steps with sums in a different order
  for (size_t a = 0; a < axes().size(); ++a) {
    const Axis& axis = axes()[a];
    const Choice& choice = axis.choices[random_word(key, a) % axis.choices.size()];
    const std::vector<std::string>& plain = !choice.twin.empty() ? choice.twin
                                            : axis.is_precision  ? axis.choices.front().own
                                                                 : choice.own;
    own.insert(own.end(), choice.own.begin(), choice.own.end());
    twin.insert(twin.end(), plain.begin(), plain.end());
    tolerance = std::max(tolerance, choice.tolerance);
    for (const std::string& assignment : choice.own) story += assignment + " ";
  }
  SCOPED_TRACE(story);
  const int before = num_threads();
  const double got = loss(own, "own"), want = loss(twin, "twin");
  set_num_threads(before);
  ASSERT_TRUE(std::isfinite(got));
  RecordProperty("difference", std::to_string(got / want - 1));
  EXPECT_NEAR(got, want, tolerance * want);
  EXPECT_LT(got, 0.995 * std::log(300.0));  // the model has learnt something
}

INSTANTIATE_TEST_SUITE_P(Matrix, CompositionTest, ::testing::Range(0, 48));

}  // namespace
}  // namespace ingot
