// Generation in device_bench: attention of single tokens, and passes of them as CUDA graphs and kernel by
// kernel.
#pragma once

#include <algorithm>
#include <optional>
#include <vector>

#include "bench/gpu/device_timer.h"
#include "ingot/infer/generate.h"
#include "ingot/nn/device_weights.h"
#include "ingot/ops/kv_cache.h"

namespace ingot {

// One token of each of B sequences over T cached positions.
inline void bench_decode(Bench& b) {
  const KvCache cache{b.tensor(DType::bf16, {b.z.B, b.z.T, b.z.H, b.z.D}),
                      b.tensor(DType::bf16, {b.z.B, b.z.T, b.z.H, b.z.D})};
  const Tensor q = b.tensor(DType::bf16, {1, b.z.B, b.z.H, b.z.D}), out = b.tensor(DType::bf16, q.shape);
  std::vector<int32_t> last;
  for (int64_t i = 1; i <= b.z.B; ++i) last.push_back(static_cast<int32_t>(i * b.z.T - 1));
  const Tensor places = b.tensor(DType::i32, {b.z.B}, 0, 0);
  copy(places, Tensor(last.data(), DType::i32, places.shape), b.stream);
  synchronize(b.stream);
  const AttentionShape shape{b.z.B, 1, b.z.T, b.z.H, b.z.H, b.z.D};
  const Tensor scratch =
      b.tensor(DType::f32, {std::max<int64_t>(1, attention_decode_scratch(shape, Device::kCuda))});
  b.time("attention of single tokens", bytes_of({cache.k, cache.v}), [&] {
    attention_decode({.out = out, .q = q, .cache = cache, .places = places, .longest = b.z.T},
                     {.scale = 0.1f}, scratch, b.stream);
  });
  b.release();
}

// Compares both ways to sample kSampledTokens tokens after each of some prompts of one token. The model has
// random weights in bf16, and of m what generation uses.
inline constexpr int64_t kSampledTokens = 64;

inline void bench_generation(Bench& b, const Model& m, int64_t layers) {
  const bool is_llama = m.is_llama;
  const ModelConfig config = ModelConfig{.layers = layers,
                                         .heads = m.H,
                                         .head_dim = m.D,
                                         .width = m.C,
                                         .ffn = m.F,
                                         .context = std::max(m.T, 2 * kSampledTokens),
                                         .vocab = m.V,
                                         .norm = is_llama ? NormKind::kRmsNorm : NormKind::kLayerNorm,
                                         .positions = is_llama ? PositionKind::kRope : PositionKind::kLearned,
                                         .mlp = is_llama ? Activation::kSwiglu : Activation::kGeluTanh,
                                         .has_bias = !is_llama}
                                 .resolved();
  Transformer model(config, DType::bf16);
  std::optional<ResidentStore> host(std::in_place, model.params(), DType::bf16, false);
  init_params(*host, 1);
  DeviceWeights weights(*host, DType::bf16, b.stream);
  host.reset();
  model.bring_to_device(b.stream);
  Region alone;
  for (const int64_t prompts : {1, 8}) {
    const auto kernel_by_kernel = [&](LayerContext& ctx, const InferBatch& batch,
                                      const std::vector<KvCache>& caches,
                                      const Tensor& logits) { model.infer(ctx, batch, caches, logits); };
    Generator graphs(model, weights, alone, b.stream, {.slots = prompts}),
        kernels(model, weights, alone, b.stream, {.slots = prompts}, kernel_by_kernel);
    std::vector<Generator::Prompt> texts;
    for (int64_t i = 0; i < prompts; ++i) texts.push_back({.tokens = {static_cast<TokenId>(i)}, .seed = 0});
    const auto sample = [&](Generator& generator) {
      return [&] {
        generator.run(texts, kSampledTokens, {.temperature = 0}, {}, [](size_t, TokenId) { return true; });
      };
    };
    b.compare(fmt::format("{} {} tokens of {} texts", m.name, kSampledTokens, prompts), "graphs",
              sample(graphs), "kernels", sample(kernels));
  }
}

}  // namespace ingot
