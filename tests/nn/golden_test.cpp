// Compares tiny models with PyTorch: losses, gradients, logits from generation with a cache, and ten steps
// of training. tests/golden/models/README.md documents the files; tools/export_golden.py writes them.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>

#include "ingot/checkpoint/hf_weights.h"
#include "ingot/ops/cross_entropy.h"
#include "ingot/optim/optimizer.h"
#include "ingot/optim/rules/adamw.h"
#include "ingot/profile/llama_f64.h"
#include "tests/nn/infer_one.h"
#include "tests/reference/numeric.h"

namespace ingot::test {
namespace {

using Json = nlohmann::json;

template <typename Enum>
Enum pick(const std::string& text, std::initializer_list<std::pair<const char*, Enum>> names) {
  for (const auto& [name, value] : names)
    if (text == name) return value;
  throw Error("golden.json: unknown name " + text);
}

ModelConfig model_config(const Json& j) {
  ModelConfig c = {.layers = j["layers"],
                   .heads = j["heads"],
                   .kv_heads = j["kv_heads"],
                   .head_dim = j["head_dim"],
                   .width = j["width"],
                   .ffn = j["ffn"],
                   .context = j["context"],
                   .vocab = j["vocab"]};
  c.norm = pick<NormKind>(j["norm"], {{"layer_norm", NormKind::kLayerNorm},
                                      {"rms_norm", NormKind::kRmsNorm},
                                      {"rms_norm_weightless", NormKind::kRmsNormWeightless}});
  c.positions = pick<PositionKind>(j["positions"],
                                   {{"learned", PositionKind::kLearned}, {"rope", PositionKind::kRope}});
  c.mlp = pick<Activation>(j["mlp"], {{"gelu_tanh", Activation::kGeluTanh},
                                      {"gelu_exact", Activation::kGeluExact},
                                      {"relu2", Activation::kRelu2},
                                      {"swiglu", Activation::kSwiglu}});
  c.has_bias = j["has_bias"];
  c.has_qk_norm = j["has_qk_norm"];
  c.is_tied = j["is_tied"];
  c.norm_eps = j["norm_eps"];
  c.rope_theta = j["rope_theta"];
  c.cap.kind =
      pick<LogitCap>(j["cap"]["kind"],
                     {{"none", LogitCap::kNone}, {"tanh", LogitCap::kTanh}, {"sigmoid", LogitCap::kSigmoid}});
  c.cap.a = j["cap"]["a"];
  c.cap.b = j["cap"]["b"];
  c.cap.c = j["cap"]["c"];
  if (!j.contains("value_embeddings")) return c;
  c.rope_dims = j["rope_dims"];
  c.mlp_only_layers = j["mlp_only_layers"].get<std::vector<int64_t>>();
  c.has_embedding_norm = j["has_embedding_norm"];
  c.has_input_mix = j["has_input_mix"];
  c.has_skips = j["has_skips"];
  c.value_embeddings = j["value_embeddings"];
  return c;
}

Tensor tensor_of(const SafetensorsEntry& e) {
  Shape shape;
  if (e.shape.size() == 1) shape = {e.shape[0]};
  if (e.shape.size() == 2) shape = {e.shape[0], e.shape[1]};
  if (e.shape.size() == 3) shape = {e.shape[0], e.shape[1], e.shape[2]};
  return Tensor(const_cast<std::byte*>(e.bytes.data()), *e.dtype, shape);
}

// Our rounding error is about as large as PyTorch's. It varies more in float32, where the order of sums
// decides, than in 16 bits, where ours is smaller (norms, softmax and loss are in float32).
constexpr double kFloatFactor = 10, kHalfFactor = 2;

class Golden : public ::testing::TestWithParam<std::tuple<const char*, DType>> {
 protected:
  std::string folder = std::string(INGOT_TEST_DATA) + "/models/" + std::get<0>(GetParam()) + "/";
  DType compute = std::get<1>(GetParam());
  bool is_f32 = compute == DType::f32;
  Json golden = Json::parse(std::ifstream(folder + "golden.json"));
  SafetensorsFile values{folder + "golden.safetensors"}, weights{folder + "model.safetensors"};
  Transformer model{model_config(golden["model"]), compute};
  ResidentStore store{model.params(), compute};
  Region region;
  Stream stream;
  Arena scratch{"scratch",
                std::max(model.scratch_bytes(3, model.config().context, true),
                         model.infer_scratch_bytes(model.config().context, {1, model.config().context}))};

  LayerContext context() {
    return {.params = store, .region = region, .scratch = scratch, .stream = stream, .dropout = {}};
  }
  std::vector<Tensor> masters() {
    std::vector<Tensor> all;
    for (size_t p = 0; p < model.params().specs().size(); ++p)
      all.push_back(store.master(static_cast<int>(p)));
    return all;
  }
  std::vector<Tensor> gradients() {
    std::vector<Tensor> all;
    for (size_t p = 0; p < model.params().specs().size(); ++p) all.push_back(store.grad(static_cast<int>(p)));
    return all;
  }
  void load() {
    read_hf_tensors(weights, hf_tensors(model), masters());
    store.refresh_compute(stream);
  }
  // Returns the tolerance, a multiple of PyTorch's own rounding error in float32 or in 16 bits.
  double allowed(const char* float_key, const char* half_key) {
    if (is_f32) return kFloatFactor * golden["float32_against_double"][float_key].get<double>();
    const char* record = compute == DType::f16 ? "float16_against_double" : "bfloat16_against_double";
    return kHalfFactor * golden[record][half_key].get<double>();
  }

  // Compares `ours` with the file's tensors of the names prefix + name. In f32 the error is the largest
  // difference as a fraction of the tensor's largest element. In 16 bits, where roundings are
  // independent, it is the root mean square of the differences as a fraction of the tensor's. With is_rms
  // it is their absolute root mean square. scalar_tolerance: for tensors of one element.
  void expect_tensors(const std::vector<Tensor>& ours, const std::string& prefix, double tolerance,
                      bool is_rms, std::optional<double> scalar_tolerance = {}) {
    for (SafetensorsSource& source :
         hf_sources(hf_tensors(model), [&](int id) { return ours[static_cast<size_t>(id)]; })) {
      const SafetensorsEntry* want = values.find(prefix + source.name);
      if (!want) continue;  // zeros that only Hugging Face has
      std::vector<float> got;
      source.stream([&](std::span<const std::byte> bytes) {
        const auto* floats = reinterpret_cast<const float*>(bytes.data());
        got.insert(got.end(), floats, floats + bytes.size() / sizeof(float));
      });
      const bool is_key_bias = source.name.ends_with("c_attn.bias");
      const Doubles reference = to_doubles(tensor_of(*want));
      ASSERT_EQ(got.size(), reference.size()) << source.name;
      double largest = 0, worst = 0, squares = 0, reference_squares = 0;
      const size_t C = got.size() / 3;
      for (size_t i = 0; i < got.size(); ++i) {
        if (is_key_bias && i >= C && i < 2 * C) continue;  // its exact gradient is zero
        const double difference = std::abs(static_cast<double>(got[i]) - reference[i]);
        largest = std::max(largest, std::abs(reference[i]));
        worst = std::max(worst, difference);
        squares += difference * difference;
        reference_squares += reference[i] * reference[i];
      }
      const double rms = std::sqrt(squares / static_cast<double>(got.size()));
      const double error = is_rms ? rms : is_f32 ? worst / largest : std::sqrt(squares / reference_squares);
      EXPECT_LE(error, got.size() == 1 ? scalar_tolerance.value_or(tolerance) : tolerance)
          << prefix << source.name;
    }
  }
};

TEST_P(Golden, LossAndGradientsMatchPyTorch) {
  load();
  const Tensor tokens = tensor_of(values.get("tokens")), targets = tensor_of(values.get("targets"));
  Arena arena("activations", size_t{64} << 20);
  Transformer::Saved saved = model.make_saved(arena, tokens.dim(0), tokens.dim(1));
  int64_t counted = 0;
  for (int64_t n = 0; n < targets.elements(); ++n) counted += targets.as<int32_t>()[n] != kIgnoreIndex;
  LayerContext ctx = context();
  const MicroBatch batch{.tokens = tokens, .targets = targets, .doc_start = {}};
  const LossSums sums = model.forward(ctx, batch, saved, 1.0f / static_cast<float>(counted));
  model.backward(ctx, batch, saved);
  EXPECT_EQ(sums.counted, counted);
  const double loss = golden["loss"];
  EXPECT_NEAR(sums.loss / static_cast<double>(counted), loss,
              allowed("loss_abs", "losses_rel") * (is_f32 ? 1 : loss));
  std::optional<double> of_scalars;
  if (golden["float32_against_double"].contains("scalar_gradients_rel"))
    of_scalars = allowed("scalar_gradients_rel", "scalar_gradients_rms");
  expect_tensors(gradients(), "gradients.", allowed("gradients_rel", "gradients_rms"), false, of_scalars);
}

// Tests every token's logits through generation with a cache, one prefix after another, in
// chunks of 1, 2, 3 ... tokens.
TEST_P(Golden, LogitsWithACacheMatchPyTorch) {
  load();
  const Tensor tokens = tensor_of(values.get("tokens")), logits = tensor_of(values.get("logits"));
  const int64_t T = tokens.dim(1), V = model.config().vocab;
  std::vector<float> got;
  Arena arena("caches", size_t{1} << 20);
  double worst = 0, squares = 0, want_squares = 0;
  for (int64_t b = 0; b < tokens.dim(0); ++b) {
    OneSequence sequence{model.make_caches(arena, 1, T)};
    for (int64_t done = 0, shard = 1; done < T; done += shard, ++shard) {
      shard = std::min(shard, T - done);
      LayerContext ctx = context();
      const int32_t* first = tokens.as<int32_t>() + b * T + done;
      sequence.append(model, ctx, {first, static_cast<size_t>(shard)}, got);
      const float* want = logits.as<float>() + (b * T + done + shard - 1) * V;
      for (int64_t v = 0; v < V; ++v) {
        const double difference = got[static_cast<size_t>(v)] - want[v];
        worst = std::max(worst, std::abs(difference));
        squares += difference * difference;
        want_squares += static_cast<double>(want[v]) * want[v];
      }
    }
  }
  EXPECT_LE(is_f32 ? worst : std::sqrt(squares / want_squares), allowed("logits_abs", "logits_rms"));
}

TEST_P(Golden, TenStepsOfTrainingMatchPyTorch) {
  load();
  const Json& recipe = golden["recipe"];
  std::vector<OptimParam> params;
  for (const ParamSpec& spec : model.params().specs()) {
    const UnitBuffers& unit = store.buffers(spec.unit);
    const int64_t begin = spec.offset, end = spec.offset + spec.elements();
    params.push_back({.name = spec.name,
                      .shape = spec.shape,
                      .w = unit.master.rows(begin, end),
                      .compute = is_f32 ? Tensor{} : unit.compute.rows(begin, end),
                      .g = unit.grad.rows(begin, end)});
  }
  OptimizerConfig config;
  config.lr = recipe["lr"];
  config.rule.options.set(&AdamW::Options::beta1, recipe["beta1"].get<double>());
  config.rule.options.set(&AdamW::Options::beta2, recipe["beta2"].get<double>());
  config.rule.options.set(&AdamW::Options::eps, recipe["eps"].get<double>());
  config.rule.options.set(&AdamW::Options::weight_decay, recipe["weight_decay"].get<double>());
  Optimizer optimizer(config, params);
  const Tensor all_tokens = tensor_of(values.get("train_tokens")),
               all_targets = tensor_of(values.get("train_targets"));
  const int64_t B = all_tokens.dim(1), T = all_tokens.dim(2);
  Arena arena("activations", size_t{64} << 20);
  Transformer::Saved saved = model.make_saved(arena, B, T);
  for (int64_t i = 0; i < 10; ++i) {
    const MicroBatch batch{.tokens = all_tokens.rows(i, i + 1).reshape({B, T}),
                           .targets = all_targets.rows(i, i + 1).reshape({B, T}),
                           .doc_start = {}};
    int64_t counted = 0;
    for (int64_t n = 0; n < B * T; ++n) counted += batch.targets.as<int32_t>()[n] != kIgnoreIndex;
    LayerContext ctx = context();
    const LossSums sums = model.forward(ctx, batch, saved, 1.0f / static_cast<float>(counted));
    model.backward(ctx, batch, saved);
    const double norm = optimizer.grad_norm(stream), want_norm = golden["grad_norms"][static_cast<size_t>(i)];
    const double loss = golden["losses"][static_cast<size_t>(i)];
    EXPECT_NEAR(sums.loss / static_cast<double>(counted), loss,
                allowed("losses_abs", "losses_rel") * (is_f32 ? 1 : loss))
        << "step " << i;
    EXPECT_NEAR(norm, want_norm, allowed("grad_norms_rel", "grad_norms_rel") * want_norm);
    const double clip = std::min(1.0, recipe["grad_clip"].get<double>() / (norm + 1e-6));
    optimizer.step({.lr = golden["lrs"][static_cast<size_t>(i)]}, static_cast<float>(clip), stream);
  }
  if (is_f32) expect_tensors(masters(), "trained.", allowed("trained_rms", ""), true);
}

// Tests the double-precision gradients that benchmarks compare with. They differ from the file's by no
// more than PyTorch's float32 gradients do from double, plus the rounding to f32 here.
class GoldenLlama : public Golden {};
TEST_P(GoldenLlama, GradientsInDoubleMatchPyTorch) {
  load();
  const MicroBatch batch{.tokens = tensor_of(values.get("tokens")),
                         .targets = tensor_of(values.get("targets")),
                         .doc_start = {}};
  const LlamaF64Gradients exact = llama_f64_gradients(model, masters(), batch);
  const Json& rounding = golden["float32_against_double"];
  EXPECT_NEAR(exact.loss, golden["loss"].get<double>(), 1.01 * rounding["loss_abs"].get<double>() + 0x1p-26);
  std::vector<Buffer> rounded;
  std::vector<Tensor> tensors;
  for (size_t p = 0; p < exact.of.size(); ++p) {
    rounded.emplace_back(DType::f32, model.params().specs()[p].shape);
    assign(rounded.back(), exact.of[p]);
  }
  for (const Buffer& buffer : rounded) tensors.push_back(buffer.tensor());
  expect_tensors(tensors, "gradients.", rounding["gradients_rel"].get<double>() + 0x1p-24, false);
}
INSTANTIATE_TEST_SUITE_P(Models, GoldenLlama,
                         ::testing::Combine(::testing::Values("tiny_llama", "tiny_llama_tied_gqa"),
                                            ::testing::Values(DType::f32)),
                         [](const auto& info) { return std::string(std::get<0>(info.param)); });

INSTANTIATE_TEST_SUITE_P(Models, Golden,
                         ::testing::Combine(::testing::Values("tiny_gpt2", "tiny_gpt2_nobias", "tiny_llama",
                                                              "tiny_llama_tied_gqa", "tiny_speedrun_sigmoid",
                                                              "tiny_speedrun_tanh", "tiny_speedrun_whole"),
                                            ::testing::Values(DType::f32, DType::bf16, DType::f16)),
                         [](const auto& info) {
                           return fmt::format("{}_{}", std::get<0>(info.param),
                                              name(std::get<1>(info.param)));
                         });

}  // namespace
}  // namespace ingot::test
