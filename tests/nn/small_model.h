// This header has what tests of a whole model share: styles of models, a model with its weights, the
// activations of one micro-batch, and a batch with documents and ignored targets.
#pragma once

#include <vector>

#include "ingot/core/philox.h"
#include "ingot/nn/transformer.h"
#include "ingot/ops/cross_entropy.h"

namespace ingot::test {

// A LLaMA with grouped queries and dropout.
inline ModelConfig small_llama(int64_t layers) {
  ModelConfig c = {.layers = layers,
                   .heads = 4,
                   .kv_heads = 2,
                   .width = 32,
                   .ffn = 64,
                   .context = 16,
                   .vocab = 61,
                   .dropout = 0.1};
  return c;
}

// The config with the layers of GPT-2, or of the nanoGPT speedrun.
inline ModelConfig gpt2_style(ModelConfig c) {
  c.norm = NormKind::kLayerNorm;
  c.positions = PositionKind::kLearned;
  c.mlp = Activation::kGeluTanh;
  c.has_bias = true;
  return c;
}
inline ModelConfig speedrun_style(ModelConfig c) {
  c.norm = NormKind::kRmsNormWeightless;
  c.mlp = Activation::kRelu2;
  c.has_qk_norm = true;
  c.is_tied = false;
  return c;
}

// Returns the config with all layers of the speed run of January 2025, including everything that its blocks
// read in addition to the residual stream.
inline ModelConfig whole_speedrun_style(ModelConfig c) {
  c = speedrun_style(c);
  c.layers = std::max<int64_t>(c.layers, 4);
  c.has_embedding_norm = c.has_input_mix = c.has_skips = true;
  c.value_embeddings = c.layers / 2 - c.layers / 4;
  c.mlp_only_layers = {c.layers / 2};
  c.rope_dims = c.head_dim > 0 ? c.head_dim / 4 * 2 : c.width / c.heads / 4 * 2;
  return c;
}

inline ModelConfig olmo2_style(ModelConfig c) {
  c.norm_place = NormPlace::kAfter;
  c.qk_norm_over = QkNormOver::kWidth;
  c.has_qk_norm = c.has_qk_norm_gain = true;
  return c;
}

// The activations of a micro-batch of B sequences of T tokens, in an arena of their size.
struct Activations {
  Activations(const Transformer& model, int64_t B, int64_t T, const RecomputePlan& plan)
      : arena("activations", size_bytes(model, B, T, plan)), saved(model.make_saved(arena, B, T, plan)) {}
  Activations(const Transformer& model, int64_t B, int64_t T)
      : Activations(model, B, T, recompute_plan({}, model.config().layers)) {}

  static size_t size_bytes(const Transformer& model, int64_t B, int64_t T, const RecomputePlan& plan) {
    Arena measure("measure");
    model.make_saved(measure, B, T, plan);
    return measure.peak_bytes();
  }

  Arena arena;
  Transformer::Saved saved;
};

// A model on the CPU with initialised weights, and the scratch to train on B sequences of T tokens.
struct SmallModel {
  SmallModel(const ModelConfig& config, DType compute, int64_t B, int64_t T, uint64_t seed,
             const HeadConfig& head = {}, const Fp8LinearConfig& fp8 = {})
      : model(config.resolved(), compute, head, fp8),
        store(model.params(), compute),
        scratch("scratch", model.scratch_bytes(B, T, true)) {
    init_params(store, seed);
    store.refresh_compute(stream);
  }
  // Dropout is that of the config, for a micro-batch that begins at first_row of the global batch.
  LayerContext context(int64_t first_row = 0) { return context(first_row, scratch); }
  LayerContext context(int64_t first_row, Arena& scratch_of_pass) {
    return {
        .params = store,
        .region = region,
        .scratch = scratch_of_pass,
        .stream = stream,
        .dropout = {
            .p = static_cast<float>(model.config().dropout), .seed = 3, .step = 7, .first_row = first_row}};
  }

  Transformer model;
  ResidentStore store;
  Arena scratch;
  Region region;
  Stream stream;
};

// A micro-batch with its memory.
struct SmallBatch {
  int64_t B, T;
  std::vector<int32_t> tokens, targets, starts;  // starts: empty without documents

  MicroBatch micro_batch() {
    return {.tokens = Tensor(tokens.data(), DType::i32, {B, T}),
            .targets = Tensor(targets.data(), DType::i32, {B, T}),
            .doc_start = starts.empty() ? Tensor{} : Tensor(starts.data(), DType::i32, {B, T})};
  }
};

// Random tokens and targets below vocab. Every fifth target is ignored, and the second document of each
// sequence begins at `second_start`.
inline SmallBatch random_batch(int64_t B, int64_t T, int32_t vocab, int32_t second_start) {
  const RandomKey key{.seed = 9, .purpose = Purpose::kSample, .stream = 0, .step = 0};
  const auto random_id = [&](uint64_t n) {
    return static_cast<int32_t>(random_word(key, n) % static_cast<uint32_t>(vocab));
  };
  SmallBatch batch{.B = B, .T = T, .tokens = {}, .targets = {}, .starts = {}};
  for (int64_t n = 0; n < B * T; ++n) {
    batch.tokens.push_back(random_id(static_cast<uint64_t>(n)));
    batch.targets.push_back(n % 5 == 3 ? kIgnoreIndex : random_id(1000 + static_cast<uint64_t>(n)));
    batch.starts.push_back(n % T >= second_start ? second_start : 0);
  }
  return batch;
}

}  // namespace ingot::test
