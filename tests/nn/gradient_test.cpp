// Checks every parameter of every kind of model against central differences along a random direction, with
// dropout, documents, grouped heads, caps, tied weights and biases.
#include <gtest/gtest.h>

#include <cmath>

#include "ingot/nn/transformer.h"
#include "ingot/ops/cross_entropy.h"
#include "tests/reference/numeric.h"

namespace ingot::testing {
namespace {

struct Case {
  const char* name;
  ModelConfig config;
};

ModelConfig base() {
  ModelConfig c;
  c.layers = 2;
  c.heads = 4;
  c.width = 24;
  c.head_dim = 6;
  c.ffn = 40;
  c.context = 11;
  c.vocab = 29;
  c.vocab_multiple = 8;
  c.init_std = 0.3;
  c.projection_init = ProjectionInit::kNormal;
  return c;
}

std::vector<Case> cases() {
  std::vector<Case> all;
  ModelConfig gpt2 = base();
  gpt2.norm = NormKind::kLayerNorm;
  gpt2.positions = PositionKind::kLearned;
  gpt2.mlp = MlpKind::kGeluTanh;
  gpt2.has_bias = true;
  gpt2.dropout = 0.2;
  all.push_back({"gpt2_dropout", gpt2});
  ModelConfig llama = base();
  llama.kv_heads = 2;
  llama.is_tied = false;
  all.push_back({"llama_grouped", llama});
  llama.has_bias = true;
  llama.dropout = 0.1;
  all.push_back({"llama_biased_dropout", llama});
  ModelConfig speedrun = base();
  speedrun.norm = NormKind::kRmsNormWeightless;
  speedrun.mlp = MlpKind::kRelu2;
  speedrun.has_qk_norm = true;
  speedrun.is_tied = false;
  speedrun.cap = {.kind = CapKind::kSigmoid, .a = 30, .b = 0, .c = 7.5};
  all.push_back({"speedrun_sigmoid", speedrun});
  speedrun.positions = PositionKind::kLearned;
  speedrun.mlp = MlpKind::kGeluExact;
  speedrun.cap = {.kind = CapKind::kTanh, .a = 15, .b = 0, .c = 1};
  all.push_back({"speedrun_tanh_learned", speedrun});
  return all;
}

class Gradient : public ::testing::TestWithParam<Case> {
 protected:
  static constexpr int64_t kB = 2;
  Transformer model{GetParam().config.resolved(), DType::f32};
  ResidentStore store{model.params(), DType::f32};
  int64_t T = model.config().context;
  Arena activations{"activations", size_t{16} << 20};
  Arena scratch{"scratch", model.scratch_bytes(kB, T, true)};
  Transformer::Saved saved = model.make_saved(activations, kB, T);
  Region region;
  Stream stream;
  std::vector<int32_t> tokens, targets, starts;
  MicroBatch batch;

  void SetUp() override {
    init_params(store, 5);
    const RandomKey key{.seed = 9, .purpose = Purpose::kSample, .stream = 0, .step = 0};
    for (int64_t n = 0; n < kB * T; ++n) {
      tokens.push_back(static_cast<int32_t>(random_word(key, static_cast<uint64_t>(n)) % 29));
      targets.push_back(n % 5 == 3
                            ? kIgnoreIndex
                            : static_cast<int32_t>(random_word(key, 1000 + static_cast<uint64_t>(n)) % 29));
      starts.push_back(n % T >= 4 ? 4 : 0);
    }
    batch = {.tokens = Tensor(tokens.data(), DType::i32, {kB, T}),
             .targets = Tensor(targets.data(), DType::i32, {kB, T}),
             .doc_start = Tensor(starts.data(), DType::i32, {kB, T})};
  }
  LayerContext context() {
    return {
        .params = store,
        .region = region,
        .scratch = scratch,
        .stream = stream,
        .dropout = {.p = static_cast<float>(model.config().dropout), .seed = 3, .step = 7, .first_row = 0}};
  }
  double loss() {
    LayerContext ctx = context();
    return model.forward(ctx, batch, saved, 0).loss;
  }
};

TEST_P(Gradient, MatchesCentralDifferences) {
  LayerContext ctx = context();
  model.forward(ctx, batch, saved, 1.0f);
  model.backward(ctx, batch, saved);
  for (size_t p = 0; p < model.params().specs().size(); ++p) {
    const ParamSpec& spec = model.params().specs()[p];
    float* w = store.master(static_cast<int>(p)).as<float>();
    const Doubles gradient = to_doubles(store.grad(static_cast<int>(p)));
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

TEST(PaddedVocabulary, GetsNoGradientAndNoProbability) {
  ModelConfig config = base();
  config.is_tied = false;
  const Transformer model(config.resolved(), DType::f32);
  ResidentStore store(model.params(), DType::f32);
  init_params(store, 1);
  Arena activations("activations", size_t{8} << 20), scratch("scratch", model.scratch_bytes(1, 4, true));
  Transformer::Saved saved = model.make_saved(activations, 1, 4);
  Region region;
  Stream stream;
  LayerContext ctx{.params = store, .region = region, .scratch = scratch, .stream = stream, .dropout = {}};
  std::vector<int32_t> tokens{1, 2, 3, 4}, targets{2, 3, 4, 5};
  const MicroBatch batch{.tokens = Tensor(tokens.data(), DType::i32, {1, 4}),
                         .targets = Tensor(targets.data(), DType::i32, {1, 4}),
                         .doc_start = {}};
  const double before = model.forward(ctx, batch, saved, 1.0f).loss;
  model.backward(ctx, batch, saved);
  for (size_t p = 0; p < model.params().specs().size(); ++p) {
    const ParamSpec& spec = model.params().specs()[p];
    if (spec.padding_rows == 0) continue;
    const Tensor grad = store.grad(static_cast<int>(p)), w = store.master(static_cast<int>(p));
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
  config.cap = {.kind = CapKind::kSigmoid, .a = 30, .b = 0, .c = 7.5};
  const Transformer model(config.resolved(), DType::f32);
  ResidentStore store(model.params(), DType::f32);
  init_params(store, 1);
  Arena activations("activations", size_t{8} << 20), scratch("scratch", model.scratch_bytes(1, 4, true));
  Transformer::Saved saved = model.make_saved(activations, 1, 4);
  Region region;
  Stream stream;
  LayerContext ctx{.params = store, .region = region, .scratch = scratch, .stream = stream, .dropout = {}};
  std::vector<int32_t> tokens{1, 2, 3, 4}, targets{2, 3, 4, 5};
  const MicroBatch batch{.tokens = Tensor(tokens.data(), DType::i32, {1, 4}),
                         .targets = Tensor(targets.data(), DType::i32, {1, 4}),
                         .doc_start = {}};
  EXPECT_NEAR(model.forward(ctx, batch, saved, 1.0f).loss / 4, std::log(29.0), 1e-5);
  model.backward(ctx, batch, saved);
  for (size_t p = 0; p < model.params().specs().size(); ++p) {
    double squares = 0;
    for (double g : to_doubles(store.grad(static_cast<int>(p)))) squares += g * g;
    EXPECT_EQ(squares > 0, model.params().specs()[p].role == ParamRole::kHead)
        << model.params().specs()[p].name;
  }
}

}  // namespace
}  // namespace ingot::testing
