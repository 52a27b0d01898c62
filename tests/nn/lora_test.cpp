// Adapters (ModelConfig::lora): with the weight w + s b a in place of w, the chain rule gives their gradients
// from that of the weight, d b = s dw aᵀ and d a = s bᵀ dw, which golden_test and gradient_test prove right.
#include <gtest/gtest.h>

#include <cmath>

#include "ingot/ops/matmul.h"
#include "ingot/ops/random_normal.h"
#include "tests/nn/small_model.h"

namespace ingot {
namespace {

using test::Activations;
using test::SmallModel;

constexpr int64_t kB = 2;

ModelConfig adapted(ModelConfig config, std::vector<std::string> targets = {}) {
  config.lora = {.rank = 3, .alpha = 6, .targets = std::move(targets)};
  return config.resolved();
}

int find(const ParamList& params, const std::string& name) {
  for (size_t id = 0; id < params.specs().size(); ++id)
    if (params.specs()[id].name == name) return static_cast<int>(id);
  return -1;
}

// Returns the name of the linear if a parameter is the second matrix of its adapter, otherwise "".
std::string linear_of(const ParamSpec& spec) {
  const size_t end = spec.name.rfind(".lora_b");
  return end == std::string::npos ? "" : spec.name.substr(0, end);
}

// Adapters start at zero, where the gradient of the first matrix is zero too.
void move_adapters(ParamStore& store) {
  for (size_t id = 0; id < store.list().specs().size(); ++id)
    if (const ParamSpec& spec = store.list().specs()[id]; !linear_of(spec).empty())
      fill_normal(store.master(static_cast<int>(id)).reshape({spec.elements()}), 0.1f,
                  {.seed = 8, .purpose = Purpose::kSample, .stream = static_cast<uint32_t>(id), .step = 0},
                  0);
}

// Runs a micro-batch; returns the sum of the losses.
double run(SmallModel& m) {
  const int64_t T = m.model.config().context;
  Activations activations(m.model, kB, T);
  test::SmallBatch batch = test::random_batch(kB, T, static_cast<int32_t>(m.model.config().vocab), 5);
  LayerContext ctx = m.context();
  m.store.begin_step();
  const double loss = m.model.forward(ctx, batch.micro_batch(), activations.saved, 0.1f).loss;
  m.model.backward(ctx, batch.micro_batch(), activations.saved);
  m.store.wait_gradients();
  return loss;
}

double relative_error(const Tensor& got, const Tensor& want) {
  double error = 0, size = 0;
  for (int64_t i = 0; i < want.elements(); ++i) {
    const auto w = static_cast<double>(want.as<float>()[i]);
    error += std::pow(static_cast<double>(got.as<float>()[i]) - w, 2);
    size += w * w;
  }
  return std::sqrt(error / size);
}

void expect_gradients_of_the_merged_model(const ModelConfig& config) {
  SmallModel lora(config, DType::f32, kB, config.context, 11);
  ModelConfig plain = config;
  plain.lora = {};
  SmallModel whole(plain, DType::f32, kB, config.context, 12);
  move_adapters(lora.store);
  lora.store.refresh_compute(lora.stream);
  const ParamList &params = lora.model.params(), &merged = whole.model.params();
  const float scale = static_cast<float>(config.lora.alpha) / static_cast<float>(config.lora.rank);
  for (size_t id = 0; id < merged.specs().size(); ++id) {
    const Tensor w = whole.store.master(static_cast<int>(id)),
                 from = lora.store.weight(find(params, merged.specs()[id].name));
    std::copy_n(from.as<float>(), from.elements(), w.as<float>());
  }
  for (size_t b = 0; b < params.specs().size(); ++b)
    if (const std::string linear = linear_of(params.specs()[b]); !linear.empty())
      scaled_matmul(whole.store.master(find(merged, linear + ".weight")),
                    lora.store.weight(static_cast<int>(b)), lora.store.weight(static_cast<int>(b) - 1),
                    MatmulForm::kNN, scale, true, lora.stream);
  const double loss = run(lora), want_loss = run(whole);
  EXPECT_NEAR(loss, want_loss, 1e-6 * want_loss);
  int adapters = 0;
  for (size_t i = 0; i < params.specs().size(); ++i) {
    const auto id = static_cast<int>(i);
    const std::string linear = linear_of(params[id]);
    EXPECT_EQ(static_cast<bool>(lora.store.grad(id)), params[id].is_trained) << params[id].name;
    if (linear.empty()) continue;
    ++adapters;
    const Tensor dw = whole.store.grad(find(merged, linear + ".weight"));
    const Tensor a = lora.store.weight(id - 1), b = lora.store.weight(id);
    std::vector<float> da(static_cast<size_t>(a.elements())), db(static_cast<size_t>(b.elements()));
    const Tensor want_a(da.data(), DType::f32, a.shape), want_b(db.data(), DType::f32, b.shape);
    scaled_matmul(want_b, dw, a, MatmulForm::kNT, scale, false, lora.stream);
    scaled_matmul(want_a, b, dw, MatmulForm::kTN, scale, false, lora.stream);
    EXPECT_LT(relative_error(lora.store.grad(id - 1), want_a), 1e-5) << linear << ", a";
    EXPECT_LT(relative_error(lora.store.grad(id), want_b), 1e-5) << linear << ", b";
  }
  EXPECT_GT(adapters, 0);
}

TEST(Lora, GradientsAreThoseOfTheMergedModel) {
  const ModelConfig llama = test::small_llama(3);
  ModelConfig qwen3 = llama;
  qwen3.has_qk_norm = qwen3.has_qk_norm_gain = true;
  for (const ModelConfig& config : {llama, qwen3, test::gpt2_style(llama), test::olmo2_style(llama),
                                    test::whole_speedrun_style(test::small_llama(4))}) {
    expect_gradients_of_the_merged_model(adapted(config));
    expect_gradients_of_the_merged_model(adapted(config, {"blocks.1.mlp.down", "blocks.2.*.up"}));
  }
}

// Only the adapters have masters and gradients.
TEST(Lora, FrozenWeightsTakeTheirOwnBytesAlone) {
  const ModelConfig config = adapted(test::small_llama(3));
  const Transformer model(config, DType::bf16);
  int64_t trained = 0, frozen = 0;
  for (const ParamSpec& spec : model.params().specs())
    (spec.is_trained ? trained : frozen) += spec.elements();
  EXPECT_EQ(trained, 3 * config.lora.rank *
                         ((config.qkv_width() + config.width) + 2 * config.width +
                          (2 * config.ffn + config.width) + (config.ffn + config.width)));
  const auto bytes = [](const Arena& arena) { return static_cast<double>(arena.used_bytes()); };
  const ResidentStore store(model.params(), DType::bf16);
  const double padding = 256.0 * 4 * static_cast<double>(model.params().specs().size());
  EXPECT_NEAR(bytes(store.grads_arena()), 4.0 * static_cast<double>(trained), padding);
  EXPECT_NEAR(bytes(store.params_arena()),
              6.0 * static_cast<double>(trained) + 2.0 * static_cast<double>(frozen), padding);
}

TEST(Lora, NothingIsComputedOrKeptBelowTheLowestAdapter) {
  const ModelConfig config = test::small_llama(4);
  const auto saved_bytes = [](const ModelConfig& c) {
    const Transformer model(c, DType::f32);
    return model.slot_bytes(kB, c.context, recompute_plan({}, c.layers), model.all_units(), Device::kCpu);
  };
  const ModelConfig high = adapted(config, {"blocks.3.*"});
  EXPECT_LT(saved_bytes(high), saved_bytes(config.resolved()) / 2);
  EXPECT_LT(saved_bytes(high), saved_bytes(adapted(config)) / 2);
  const Transformer model(high, DType::f32);
  const Activations activations(model, kB, config.context);
  const Program& program = *activations.saved.training.program;
  int ops = 0;
  for (size_t i = program.border(); i < program.ops().size(); ++i) {
    ++ops;
    const Scope& scope = program.ops()[i].scope;
    EXPECT_GE(scope.unit, 4) << program.ops()[i].primitive->name();
  }
  EXPECT_GT(ops, 10);
  // The adapter of the last product needs the gradient of the block's output alone.
  const Transformer last(adapted(config, {"blocks.3.mlp.down"}), DType::f32);
  const Activations few(last, kB, config.context);
  for (size_t i = few.saved.training.program->border(); i < few.saved.training.program->ops().size(); ++i)
    EXPECT_NE(few.saved.training.program->ops()[i].scope.half, Half::kAttention);
}

TEST(Lora, TargetsThatMatchNothingAreRefused) {
  EXPECT_THROW(Transformer(adapted(test::small_llama(2), {"blocks.7.*"}), DType::f32), Error);
}

// A product takes 2 FLOPs per weight in forward, and as many for each of its two gradients.
TEST(Lora, FrozenWeightsHaveNoGradientsToCount) {
  const ModelConfig plain = test::small_llama(2).resolved(), lora = adapted(test::small_llama(2));
  double frozen = static_cast<double>(plain.vocab * plain.width), trained = 0;
  const Transformer model(lora, DType::f32);
  for (const ParamSpec& spec : model.params().specs())
    if (spec.role == ParamRole::kMatrix)
      (spec.is_trained ? trained : frozen) += static_cast<double>(spec.elements());
  EXPECT_DOUBLE_EQ(lora.flops_per_token(), 4 * frozen + 6 * trained + plain.attention_flops_per_token());
}

}  // namespace
}  // namespace ingot
