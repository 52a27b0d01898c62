// Checks every parameter of every kind of model against central differences along a random direction, with
// dropout, documents, grouped heads, caps, tied weights and biases.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/nn/small_model.h"
#include "tests/reference/numeric.h"

namespace ingot::test {
namespace {

struct Case {
  const char* name;
  ModelConfig config;
};

ModelConfig base() {
  ModelConfig c = {.layers = 2,
                   .heads = 4,
                   .head_dim = 6,
                   .width = 24,
                   .ffn = 40,
                   .context = 11,
                   .vocab = 29,
                   .vocab_multiple = 8,
                   .projection_init = ProjectionInit::kNormal,
                   .init_std = 0.3};
  return c;
}

std::vector<Case> cases() {
  std::vector<Case> all;
  ModelConfig gpt2 = gpt2_style(base());
  gpt2.dropout = 0.2;
  all.push_back({"gpt2_dropout", gpt2});
  ModelConfig llama = base();
  llama.kv_heads = 2;
  llama.is_tied = false;
  all.push_back({"llama_grouped", llama});
  llama.has_bias = true;
  llama.dropout = 0.1;
  all.push_back({"llama_biased_dropout", llama});
  ModelConfig qwen2 = base();
  qwen2.kv_heads = 2;
  qwen2.has_qkv_bias = true;
  qwen2.rope_scaling = {.kind = RopeScaling::Kind::kLlama3, .factor = 2, .original_context = 8};
  all.push_back({"qwen2_llama3_rope", qwen2});
  ModelConfig qwen3 = base();
  qwen3.kv_heads = 2;
  qwen3.head_dim = 8;
  qwen3.has_qk_norm = qwen3.has_qk_norm_gain = true;
  qwen3.dropout = 0.1;
  all.push_back({"qwen3", qwen3});
  ModelConfig olmo2 = olmo2_style(base());
  olmo2.kv_heads = 2;
  all.push_back({"olmo2", olmo2});
  olmo2.has_qk_norm_gain = false;
  olmo2.norm = NormKind::kLayerNorm;
  olmo2.has_bias = true;
  olmo2.mlp = Activation::kGeluTanh;
  olmo2.dropout = 0.2;
  all.push_back({"norms_after_layernorm_dropout", olmo2});
  ModelConfig mistral = base();
  mistral.kv_heads = 2;
  mistral.window = 4;
  all.push_back({"mistral_window", mistral});
  mistral.full_layers = {1};
  all.push_back({"window_in_one_block", mistral});
  mistral.full_layers.clear();
  mistral.nope_every = 2;
  mistral.rope_scaling = {.kind = RopeScaling::Kind::kLinear, .factor = 4};
  all.push_back({"window_nope", mistral});
  ModelConfig yarn = base();
  yarn.head_dim = 8;
  yarn.nope_every = 2;
  yarn.has_qk_norm = true;
  yarn.rope_theta = 100;
  yarn.rope_scaling = {.kind = RopeScaling::Kind::kYarn,
                       .factor = 4,
                       .beta_fast = 4,
                       .attention_factor = 1.5,
                       .original_context = 64};
  all.push_back({"yarn_nope_qk_norm", yarn});
  ModelConfig speedrun = speedrun_style(base());
  speedrun.cap = {.kind = LogitCap::kSigmoid, .a = 30, .b = 0, .c = 7.5};
  all.push_back({"speedrun_sigmoid", speedrun});
  speedrun.positions = PositionKind::kLearned;
  speedrun.mlp = Activation::kGeluExact;
  speedrun.cap = {.kind = LogitCap::kTanh, .a = 15, .b = 0, .c = 1};
  all.push_back({"speedrun_tanh_learned", speedrun});
  ModelConfig whole = base();
  whole.layers = 6;
  whole.head_dim = 8;
  whole.kv_heads = 2;
  whole = whole_speedrun_style(whole);
  all.push_back({"speedrun_whole", whole});
  whole.dropout = 0.1;
  whole.is_tied = true;
  whole.norm = NormKind::kRmsNorm;
  whole.mlp_only_layers = {2, 3};
  whole.value_embeddings = 1;
  all.push_back({"speedrun_whole_dropout", whole});
  ModelConfig gpt_j = gpt2_style(base());
  gpt_j.has_parallel_residual = true;
  gpt_j.positions = PositionKind::kRope;
  gpt_j.rope_dims = 4;
  gpt_j.dropout = 0.1;
  all.push_back({"gpt_j", gpt_j});
  return all;
}

class Gradient : public ::testing::TestWithParam<Case> {
 protected:
  static constexpr int64_t kB = 2;
  int64_t T = GetParam().config.context;
  SmallModel small{GetParam().config, DType::f32, kB, T, 5};
  const Transformer& model = small.model;
  ResidentStore& store = small.store;
  Activations activations{model, kB, T};
  Transformer::Saved& saved = activations.saved;
  SmallBatch memory = random_batch(kB, T, 29, 4);
  MicroBatch batch = memory.micro_batch();

  // Gains of 1 would hide a gradient that leaves them out.
  void SetUp() override {
    for (size_t p = 0; p < model.params().specs().size(); ++p) {
      const ParamRole role = model.params().specs()[p].role;
      if (role != ParamRole::kNorm && role != ParamRole::kScalar) continue;
      const Tensor w = store.master(static_cast<int>(p));
      for (int64_t i = 0; i < w.elements(); ++i)
        w.as<float>()[i] +=
            0.3f *
            random_normal(
                {.seed = 2, .purpose = Purpose::kSample, .stream = static_cast<uint32_t>(p), .step = 0},
                static_cast<uint64_t>(i));
    }
  }

  // The loss of a pass that trains, which has dropout.
  double loss() {
    LayerContext ctx = small.context();
    return model.forward(ctx, batch, saved, 1.0f).loss;
  }
};

TEST_P(Gradient, MatchesCentralDifferences) {
  LayerContext ctx = small.context();
  model.forward(ctx, batch, saved, 1.0f);
  model.backward(ctx, batch, saved);
  std::vector<Doubles> gradients;
  for (size_t p = 0; p < model.params().specs().size(); ++p)
    gradients.push_back(to_doubles(store.grad(static_cast<int>(p))));
  for (size_t p = 0; p < model.params().specs().size(); ++p) {
    const ParamSpec& spec = model.params().specs()[p];
    float* w = store.master(static_cast<int>(p)).as<float>();
    const Doubles& gradient = gradients[p];
    // The direction is the gradient plus a random component, so that the derivative is far above the noise.
    double norm = 0;
    for (double g : gradient) norm += g * g;
    ASSERT_GT(norm, 0) << spec.name << " has no gradient";
    Doubles direction(gradient.size()), saved_w(gradient.size());
    double slope = 0;
    for (size_t i = 0; i < gradient.size(); ++i) {
      const double noise = random_normal(
          {.seed = 1, .purpose = Purpose::kSample, .stream = static_cast<uint32_t>(p), .step = 0}, i);
      direction[i] =
          gradient[i] / std::sqrt(norm) + 0.5 * noise / std::sqrt(static_cast<double>(gradient.size()));
      slope += gradient[i] * direction[i];
      saved_w[i] = static_cast<double>(w[i]);
    }
    const auto loss_at = [&](double h) {
      for (size_t i = 0; i < saved_w.size(); ++i) w[i] = static_cast<float>(saved_w[i] + h * direction[i]);
      return loss();
    };
    const double h = 2e-3;
    const double measured = (loss_at(h) - loss_at(-h)) / (2 * h);
    loss_at(0);
    // Differences of sums of about 20 losses in f32 have noise of 20 * 2^-22 / h, and curvature adds O(h^2).
    EXPECT_NEAR(measured, slope, 0.01 * std::abs(slope) + 20 * 0x1p-22 / h) << spec.name;
  }
}

INSTANTIATE_TEST_SUITE_P(Models, Gradient, ::testing::ValuesIn(cases()),
                         [](const auto& info) { return std::string(info.param.name); });

SmallBatch four_tokens() {
  return {.B = 1, .T = 4, .tokens = {1, 2, 3, 4}, .targets = {2, 3, 4, 5}, .starts = {}};
}

TEST(PaddedVocabulary, GetsNoGradientAndNoProbability) {
  ModelConfig config = base();
  config.is_tied = false;
  SmallModel small(config, DType::f32, 1, 4, 1);
  const Transformer& model = small.model;
  Activations activations(model, 1, 4);
  Transformer::Saved& saved = activations.saved;
  LayerContext ctx = small.context();
  SmallBatch memory = four_tokens();
  const MicroBatch batch = memory.micro_batch();
  const double before = model.forward(ctx, batch, saved, 1.0f).loss;
  model.backward(ctx, batch, saved);
  for (size_t p = 0; p < model.params().specs().size(); ++p) {
    const ParamSpec& spec = model.params().specs()[p];
    if (spec.padding_rows == 0) continue;
    const Tensor grad = small.store.grad(static_cast<int>(p)), w = small.store.master(static_cast<int>(p));
    const int64_t first = (spec.shape[0] - spec.padding_rows) * spec.shape[1];
    for (int64_t i = first; i < grad.elements(); ++i) {
      ASSERT_EQ(grad.as<float>()[i], 0.0f) << spec.name;
      ASSERT_EQ(w.as<float>()[i], 0.0f) << spec.name;
      w.as<float>()[i] = 100;  // padding may hold any value
    }
  }
  EXPECT_EQ(model.forward(ctx, batch, saved, 0).loss, before);
}

TEST(ZeroInitialisedHead, StartsAtTheUniformLossAndStillTrains) {
  ModelConfig config = base();
  config.is_tied = false;
  config.projection_init = ProjectionInit::kZero;
  config.cap = {.kind = LogitCap::kSigmoid, .a = 30, .b = 0, .c = 7.5};
  SmallModel small(config, DType::f32, 1, 4, 1);
  const Transformer& model = small.model;
  Activations activations(model, 1, 4);
  Transformer::Saved& saved = activations.saved;
  LayerContext ctx = small.context();
  SmallBatch memory = four_tokens();
  const MicroBatch batch = memory.micro_batch();
  EXPECT_NEAR(model.forward(ctx, batch, saved, 1.0f).loss / 4, std::log(29.0), 1e-5);
  model.backward(ctx, batch, saved);
  for (size_t p = 0; p < model.params().specs().size(); ++p) {
    double squares = 0;
    for (double g : to_doubles(small.store.grad(static_cast<int>(p)))) squares += g * g;
    EXPECT_EQ(squares > 0, model.params().specs()[p].role == ParamRole::kHead)
        << model.params().specs()[p].name;
  }
}

}  // namespace
}  // namespace ingot::test
