// The proof of coverage accepts the layouts that there are, and names what is wrong in spoiled ones.
#include "ingot/parallel/coverage.h"

#include <gmock/gmock.h>

#include "ingot/core/error.h"
#include "tests/nn/small_model.h"

namespace ingot {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

RunConfig run(ModelConfig model, const ParallelConfig& layout) {
  RunConfig config;
  config.model = std::move(model);
  config.model.heads = 8;
  config.model.kv_heads = config.model.value_embeddings > 0 ? 8 : 2;
  config.train.batch_size = 4;
  config.train.grad_accum = 64;
  config.parallel = layout;
  return config;
}

ModelConfig llama() {
  ModelConfig c = testing::small_llama(6);
  c.has_qkv_bias = c.is_tied = true;
  return c;
}

std::string refusal(const RunConfig& config, const std::function<void(HeldShard&)>& change) {
  try {
    check_coverage(config, change);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kInternal);
    return error.what();
  }
  return "accepted";
}

TEST(Coverage, EveryLayoutHoldsEveryElementOnce) {
  ParallelConfig stages{.dp = 2, .fsdp = 2, .tp = 4, .pp = 2};
  ParallelConfig interleaved = stages;
  interleaved.schedule = PipelineKind::kInterleaved;
  interleaved.chunks = 2;
  ParallelConfig kept{.dp = 2, .fsdp = 4};
  kept.keeps_units = true;
  ModelConfig adapted = llama();
  adapted.lora = {.rank = 4, .alpha = 8, .targets = {"blocks.2.*", "*.qkv"}};
  for (const ModelConfig& model :
       {llama(), testing::gpt2_style(llama()), testing::whole_speedrun_style(llama()), adapted})
    for (const ParallelConfig& layout :
         {ParallelConfig{.dp = 3}, ParallelConfig{.fsdp = 5}, ParallelConfig{.dp = 2, .fsdp = 3}, kept,
          ParallelConfig{.tp = 8}, ParallelConfig{.fsdp = 2, .tp = 8}, ParallelConfig{.pp = 4}, stages,
          interleaved}) {
      SCOPED_TRACE(layout.to_string());
      RunConfig config = run(model, layout);
      EXPECT_EQ(refusal(config, {}), "accepted");
      config.precision = {.compute = DType::bf16, .master = Masters::kNone};
      EXPECT_EQ(refusal(config, {}), "accepted");
    }
}

TEST(Coverage, AThousandRanksAreCovered) {
  ModelConfig model = llama();
  model.heads = model.kv_heads = 8;
  EXPECT_EQ(refusal(run(model, {.dp = 4, .fsdp = 16, .tp = 8, .pp = 2}), {}), "accepted");
}

constexpr const char* kQkv = "blocks.1.attention.qkv.weight";

TEST(Coverage, PlantedMistakesAreNamed) {
  const RunConfig config = run(llama(), {.dp = 2, .fsdp = 2, .tp = 2, .pp = 2});
  ModelConfig resolved = config.model.resolved();
  const Transformer model(resolved, DType::f32);
  int up = -1;
  const std::vector<ParamSpec>& specs = model.params().specs();
  for (size_t id = 0; id < specs.size(); ++id)
    if (specs[id].name == "blocks.1.mlp.up.weight") up = static_cast<int>(id);
  const auto expect_named = [&](const char* what, const std::function<void(HeldShard&)>& change) {
    EXPECT_THAT(refusal(config, change),
                AllOf(HasSubstr(specs[static_cast<size_t>(up)].name), HasSubstr(what)));
  };
  int found = 0;
  const auto here = [&](HeldShard& part) {
    const bool is_here = part.shard.id == up && part.shard.elements() > 0 && part.shard.begin == 0;
    found += is_here;
    return is_here;
  };
  expect_named("counted in the norm", [&](HeldShard& part) {  // no rank counts a shard
    if (here(part)) part.shard.is_counted = false;
  });
  expect_named("have different elements", [&](HeldShard& part) {  // a replica cut its shard elsewhere
    if (here(part) && part.rank >= 8) part.shard.begin += 256;
  });
  expect_named("counted in the norm", [&](HeldShard& part) {  // all shards begin one block early
    if (part.shard.id == up && part.shard.begin > 0) part.shard.begin -= 256;
  });
  // Two replicas write the first half of a shard, and none the second.
  expect_named("written to a checkpoint", [&](HeldShard& part) {
    const int64_t half = part.shard.elements() / 2;
    if (here(part)) part.written = {0, half};
  });
  // No rank writes a shard.
  expect_named("written to a checkpoint", [&](HeldShard& part) {
    if (here(part)) part.written = {0, 0};
  });
  EXPECT_GT(found, 0);
  // The last stage has another part of the tied table than the first.
  EXPECT_THAT(refusal(config,
                      [](HeldShard& part) {
                        if (part.shard.id == 0 && !part.shard.is_counted) part.shard.end -= 32;
                      }),
              AllOf(HasSubstr("embedding.weight"), HasSubstr("the ends of a pipeline")));
  // Ranks of one kv-head do not know that they share it.
  EXPECT_THAT(refusal(run(llama(), {.tp = 4}),
                      [&](HeldShard& part) {
                        const bool is_qkv = specs[static_cast<size_t>(part.shard.id)].name == kQkv;
                        if (part.rank == 3 && is_qkv) part.shard.end -= resolved.width;
                      }),
              AllOf(HasSubstr(kQkv), HasSubstr("ranks of one kv-head")));
}

}  // namespace
}  // namespace ingot
