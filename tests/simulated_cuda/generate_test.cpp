// Generation on a simulated device gives the tokens of the CPU.
#include <gtest/gtest.h>

#include <cuda_runtime.h>

#include "ingot/nn/device_weights.h"
#include "ingot/ops/kv_cache.h"
#include "tests/infer/sampled_tokens.h"
#include "tests/train/small_training.h"

namespace ingot::test {
namespace {

struct GenerationCase {
  std::string name;
  std::vector<std::string> keys;
};

class SimulatedGeneration : public ::testing::TestWithParam<GenerationCase> {};

std::vector<std::string> keys_of(const GenerationCase& c) {
  std::vector<std::string> keys{"model.layers=1",   "model.heads=4",          "model.kv_heads=2",
                                "model.context=16", "model.vocab_multiple=8", "train.batch_size=1"};
  keys.insert(keys.end(), c.keys.begin(), c.keys.end());
  return keys;
}

// Expects that 14 tokens after each prompt, `slots` of them at the same time, are those of the CPU, and that
// at least so many passes were graphs. The weights are the CPU's, in memory of the device without masters.
void expect_tokens_of_the_cpu(Trainer& trainer, const std::vector<Generator::Prompt>& prompts,
                              const SampleConfig& config, int64_t slots = 3, int64_t least_graphs = 10) {
  Transformer& model = *trainer.layout().model;
  Stream stream = make_stream(Device::kCuda);
  DeviceWeights weights(trainer.params(), model.compute(), stream);
  model.bring_to_device(stream);
  const auto want = sampled(trainer, prompts, 14, slots, config);
  Generator generator(model, weights, *trainer.layout().region, stream, {.slots = slots});
  generator.limit_ids(61);
  const int64_t launches = simulated_cuda::graph_launches();
  std::vector<std::vector<TokenId>> got(prompts.size());
  generator.run(prompts, 14, config, {}, [&](size_t prompt, TokenId id) {
    got[prompt].push_back(id);
    return true;
  });
  EXPECT_EQ(got, want);
  EXPECT_GE(simulated_cuda::graph_launches() - launches, least_graphs);
}

// Generation goes beyond the context, with fewer slots than prompts.
TEST_P(SimulatedGeneration, GivesTheTokensOfTheCpu) {
  SmallTraining host(small_config(keys_of(GetParam())));
  host.steps(30);
  for (const SampleConfig& config :
       {SampleConfig{.temperature = 0}, SampleConfig{.temperature = 0.7f, .top_k = 30, .top_p = 1}})
    expect_tokens_of_the_cpu(host.trainer, five_prompts(), config);
}

// Two positions of a sequence have different graphs if the second one needs another slice of the cache.
TEST(SimulatedGeneration, GivesTheTokensOfTheCpuFromOneSliceToTheNext) {
  std::vector<std::string> keys = keys_of({"", {}});
  keys.emplace_back("model.context=160");
  SmallTraining host(small_config(keys));
  host.steps(5);
  std::vector<Generator::Prompt> prompts{{{}, 1}, {{7, 8}, 2}};
  for (TokenId i = 0; i < kDecodeSlice - 6; ++i) prompts[0].tokens.push_back(i * 7 % 61);
  expect_tokens_of_the_cpu(host.trainer, prompts, {.temperature = 0});
}

INSTANTIATE_TEST_SUITE_P(
    Models, SimulatedGeneration,
    ::testing::Values(GenerationCase{"llama", {}},
                      GenerationCase{"gpt2",
                                     {"model.kv_heads=0", "model.norm=layernorm", "model.positions=learned",
                                      "model.mlp=gelu_tanh", "model.bias=true", "model.cap=sigmoid"}},
                      GenerationCase{"qk_norm_gain",
                                     {"model.qk_norm=true", "model.qk_norm_gain=true", "model.tied=false"}},
                      GenerationCase{"qk_norm_in_bf16", {"model.qk_norm=true", "precision.compute=bf16"}},
                      GenerationCase{"window", {"model.window=6"}}),
    [](const auto& info) { return info.param.name; });

// There are more slots than tokens of a context, so a long prompt is read one token at a time in the same
// passes as the other prompts. Its first passes need no logits of it.
TEST(SimulatedGeneration, GivesTheTokensOfTheCpuBesideAPromptThatWaits) {
  std::vector<std::string> keys = keys_of({"", {}});
  keys.emplace_back("model.context=4");
  SmallTraining host(small_config(keys));
  host.steps(5);
  expect_tokens_of_the_cpu(host.trainer, {{{1}, 1}, {{2}, 2}, {{3}, 3}, {{4}, 4}, {{7, 8, 9, 10}, 5}},
                           {.temperature = 0}, 5, 3);
}

// A trainer on the device samples from its own weights, with the memory that its plan says, and without
// graphs, because an executor's messages between ranks are not a part of them.
TEST(SimulatedGeneration, SamplesFromTheTrainersWeights) {
  const std::vector<std::string> keys = keys_of({"", {}});
  SmallTraining host(small_config(keys));
  std::vector<std::string> there = keys;
  there.emplace_back("train.device=cuda");
  SmallTraining device(small_config(there));
  const int64_t launches = simulated_cuda::graph_launches();
  EXPECT_EQ(sampled(device.trainer, five_prompts(), 6, 2, {.temperature = 0}),
            sampled(host.trainer, five_prompts(), 6, 2, {.temperature = 0}));
  EXPECT_EQ(simulated_cuda::graph_launches(), launches);
  const InferBytes bytes =
      Generator::planned_bytes(*device.trainer.layout().model, {.slots = 2}, Device::kCuda);
  EXPECT_GT(bytes.device, bytes.host);
}

}  // namespace
}  // namespace ingot::test
