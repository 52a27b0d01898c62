// Transformer::scratch_bytes and infer_scratch_bytes are exactly what a model then uses.
#include <gtest/gtest.h>

#include "tests/nn/infer_one.h"
#include "tests/nn/small_model.h"

namespace ingot::test {
namespace {

struct ScratchCase {
  const char* name;
  ModelConfig config;
  DType compute;
  Fp8Recipe recipe = Fp8Recipe::kNone;
};

class Scratch : public ::testing::TestWithParam<ScratchCase> {};

// Everything that can be scratch is: backward recomputes the norms and the activation.
TEST_P(Scratch, OfATrainingPassHasThePlannedPeak) {
  const ScratchCase& c = GetParam();
  const int64_t B = 2, T = c.config.context;
  SmallModel small(c.config, c.compute, B, T, 1, {}, {.recipe = c.recipe});
  Activations activations(small.model, B, T);
  Fp8State fp8(small.model.fp8_tensors(), 0, 0);
  SmallBatch batch = random_batch(B, T, 61, 6);
  LayerContext ctx = small.context();
  ctx.fp8 = &fp8;
  small.model.forward(ctx, batch.micro_batch(), activations.saved, 1.0f);
  small.model.backward(ctx, batch.micro_batch(), activations.saved);
  EXPECT_EQ(small.scratch.peak_bytes(), small.model.scratch_bytes(B, T, true));
  EXPECT_EQ(small.scratch.used_bytes(), 0u);
}

INSTANTIATE_TEST_SUITE_P(
    Models, Scratch,
    ::testing::Values(ScratchCase{"llama_f32", small_llama(2), DType::f32},
                      ScratchCase{"llama_bf16", small_llama(2), DType::bf16},
                      ScratchCase{"gpt2_f32", gpt2_style(small_llama(2)), DType::f32},
                      ScratchCase{"speedrun_bf16", speedrun_style(small_llama(2)), DType::bf16},
                      ScratchCase{"whole_speedrun_bf16", whole_speedrun_style(small_llama(4)), DType::bf16},
                      ScratchCase{"olmo2_f32", olmo2_style(small_llama(2)), DType::f32},
                      ScratchCase{"tensorwise", small_llama(2), DType::bf16, Fp8Recipe::kTensorwise},
                      ScratchCase{"rowwise", small_llama(2), DType::bf16, Fp8Recipe::kRowwise},
                      ScratchCase{"rowwise_gw_hp", small_llama(2), DType::bf16, Fp8Recipe::kRowwiseGwHp}),
    [](const auto& info) { return std::string(info.param.name); });

// The first token uses another attention kernel than those that follow it.
TEST(InferScratch, SufficesForAnyNumberOfTokensUpToThePlan) {
  for (const ModelConfig& config :
       {small_llama(2), olmo2_style(small_llama(2)), whole_speedrun_style(small_llama(4))}) {
    SmallModel small(config, DType::f32, 1, 16, 1);
    std::vector<int32_t> ids(16, 3);
    std::vector<float> logits;
    for (const int64_t most : {1, 2, 5}) {
      Arena scratch("inference", small.model.infer_scratch_bytes(most, {1, 16})),
          arena("caches", size_t{1} << 20);
      OneSequence sequence{small.model.make_caches(arena, 1, 16)};
      LayerContext ctx{.params = small.store,
                       .region = small.region,
                       .scratch = scratch,
                       .stream = small.stream,
                       .dropout = {}};
      for (int64_t done = 0, n = 1; done < 16; done += n) {
        n = std::min(most, 16 - done);
        EXPECT_NO_THROW(
            sequence.append(small.model, ctx, std::span(ids).first(static_cast<size_t>(n)), logits));
      }
    }
  }
}

}  // namespace
}  // namespace ingot::test
