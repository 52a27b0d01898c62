// The proof of coverage accepts the layouts that there are, and names what is wrong in spoiled ones.
#include "ingot/parallel/coverage.h"

#include <gmock/gmock.h>

#include "ingot/core/error.h"
#include "tests/nn/small_model.h"
#include "tests/reference/error_of.h"

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
  ModelConfig c = test::small_llama(6);
  c.has_qkv_bias = c.is_tied = true;
  return c;
}

std::string refusal(const RunConfig& config, const std::function<void(HeldShard&)>& change) {
  return error_of([&] { check_coverage(config, change); }, ErrorKind::kInternal);
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
       {llama(), test::gpt2_style(llama()), test::whole_speedrun_style(llama()), adapted})
    for (const ParallelConfig& layout :
         {ParallelConfig{.dp = 3}, ParallelConfig{.fsdp = 5}, ParallelConfig{.dp = 2, .fsdp = 3}, kept,
          ParallelConfig{.tp = 8}, ParallelConfig{.fsdp = 2, .tp = 8}, ParallelConfig{.pp = 4}, stages,
          interleaved}) {
      SCOPED_TRACE(layout.to_string());
      RunConfig config = run(model, layout);
      EXPECT_EQ(refusal(config, {}), "no error");
      config.precision = {.compute = DType::bf16, .master = Masters::kNone};
      EXPECT_EQ(refusal(config, {}), "no error");
    }
}

TEST(Coverage, AThousandRanksAreCovered) {
  ModelConfig model = llama();
  model.heads = model.kv_heads = 8;
  EXPECT_EQ(refusal(run(model, {.dp = 4, .fsdp = 16, .tp = 8, .pp = 2}), {}), "no error");
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
    if (here(part)) part.shard.contributes_to_norm = false;
  });
  expect_named("have different elements", [&](HeldShard& part) {  // a replica cut its shard elsewhere
    if (here(part) && part.rank >= 8) part.shard.begin += 256;
  });
  expect_named("counted in the norm", [&](HeldShard& part) {  // all shards begin one block early
    if (part.shard.id != up || part.shard.begin == 0) return;
    part.shard.begin -= 256;
    const TensorParallel tp{.rank = part.rank % 2, .count = 2};
    part.update.rects = rects_of(Transformer(resolved, DType::f32, {}, {}, tp).params()[up], part.shard.begin,
                                 part.shard.end);
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
                        if (part.shard.id == 0 && !part.shard.contributes_to_norm) part.shard.end -= 32;
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

// The error for a run in which the shards of one parameter are changed.
std::string refusal_of(const RunConfig& config, const std::string& name,
                       const std::function<void(HeldShard&)>& change) {
  const Transformer model(config.model.resolved(), DType::f32);
  int changed = 0;
  const std::string error = refusal(config, [&](HeldShard& part) {
    if (model.params()[part.shard.id].name != name || part.shard.elements() == 0) return;
    ++changed;
    change(part);
  });
  EXPECT_GT(changed, 0) << name;
  return error;
}

// Takes away the sums over groups whose name begins with a word.
void drop_sum(HeldShard& part, const std::string& group) {
  std::erase_if(part.sums, [&](const SummedElements& sum) { return sum.group.starts_with(group); });
}

TEST(Coverage, MistakesInSumsOfGradientsAreNamed) {
  constexpr const char* kUp = "blocks.1.mlp.up.weight";
  const RunConfig config = run(llama(), {.dp = 2, .fsdp = 2, .tp = 2, .pp = 2});
  for (const char* group : {"replicate", "shard"})
    EXPECT_THAT(refusal_of(config, kUp, [&](HeldShard& part) { drop_sum(part, group); }),
                AllOf(HasSubstr(kUp), HasSubstr("does not sum over them")));
  // One rank alone does not take part.
  EXPECT_THAT(refusal_of(config, kUp,
                         [](HeldShard& part) {
                           if (part.shard.begin == 0 && part.rank >= 8) drop_sum(part, "replicate");
                         }),
              HasSubstr("does not sum over them"));
  EXPECT_THAT(refusal_of(config, kUp, [](HeldShard& part) { part.sums.push_back(part.sums.front()); }),
              AllOf(HasSubstr(kUp), HasSubstr("once too often")));
  // The tensor-parallel ranks, which have the whole gradient each, are summed over too.
  EXPECT_THAT(refusal_of(config, "blocks.1.mlp.norm.weight",
                         [](HeldShard& part) {
                           part.sums.push_back({.group = fmt::format("tp of rank {}", part.rank / 2 * 2),
                                                .elements = {0, part.shard.elements()}});
                         }),
              AllOf(HasSubstr("blocks.1.mlp.norm.weight"), HasSubstr("2 ranks: 0 1")));
  // A scatter runs over neighbours in another group.
  EXPECT_THAT(refusal_of(config, kUp,
                         [](HeldShard& part) {
                           for (SummedElements& sum : part.sums)
                             if (sum.group.starts_with("shard"))
                               sum.group = fmt::format("tp of rank {}", part.rank / 2 * 2);
                         }),
              HasSubstr("does not sum over them"));
  // A tied table is reduced on its first stage only.
  EXPECT_THAT(refusal_of(config, "embedding.weight",
                         [](HeldShard& part) {
                           if (!part.shard.contributes_to_norm) drop_sum(part, "pp ends");
                         }),
              AllOf(HasSubstr("embedding.weight"), HasSubstr("does not sum over them")));
  // The rows of a shared kv-head are not summed, or a row too few is.
  const RunConfig shared = run(llama(), {.tp = 4});
  EXPECT_THAT(refusal_of(shared, kQkv, [](HeldShard& part) { drop_sum(part, "kv-heads"); }),
              AllOf(HasSubstr(kQkv), HasSubstr("does not sum over them")));
  EXPECT_THAT(refusal_of(shared, kQkv,
                         [&](HeldShard& part) { part.sums.back().elements.begin += config.model.width; }),
              HasSubstr(kQkv));
}

TEST(Coverage, MistakesInUpdatesOfMatricesAreNamed) {
  constexpr const char* kFused = "blocks.1.mlp.up.weight";
  const RunConfig config = run(llama(), {.fsdp = 2, .tp = 2});
  // A rank orthogonalises its shard.
  EXPECT_THAT(refusal_of(config, kQkv, [](HeldShard& part) { part.update.logical = {}; }),
              AllOf(HasSubstr(kQkv), HasSubstr("sees")));
  // Gate and up are one matrix.
  EXPECT_THAT(refusal_of(config, kFused, [](HeldShard& part) { part.update.fused_rows.clear(); }),
              AllOf(HasSubstr(kFused), HasSubstr("as 1 matrices")));
  // A shard lies elsewhere in the matrix than its rank says.
  EXPECT_THAT(refusal_of(config, kQkv, [](HeldShard& part) { part.update.rects.front().row += 1; }),
              AllOf(HasSubstr(kQkv), HasSubstr("elsewhere")));
  // The elements of one rank are not in the matrix that is collected.
  EXPECT_THAT(refusal_of(config, kQkv,
                         [](HeldShard& part) {
                           if (part.rank == 1) part.update.is_added = false;
                         }),
              AllOf(HasSubstr(kQkv), HasSubstr("updated")));
}

}  // namespace
}  // namespace ingot
