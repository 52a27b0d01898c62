// Activation checkpointing: every policy gives bit-identical gradients, takes the bytes that a formula
// gives, and recomputes no more than it must.
#include "ingot/nn/recompute.h"

#include <gtest/gtest.h>

#include <cstring>

#include "tests/nn/small_model.h"
#include "tests/reference/error_of.h"
#include "tests/reference/numeric.h"

namespace ingot::test {
namespace {

using Part = RecomputePart;
using Policy = RecomputePolicy;

constexpr int64_t kLayers = 5;

ModelConfig llama() { return small_llama(kLayers); }

ModelConfig gpt2() {
  ModelConfig c = gpt2_style(llama());
  c.kv_heads = 0;
  return c;
}

ModelConfig speedrun() { return speedrun_style(llama()); }

struct Choice {
  const char* name;
  RecomputeConfig config;
};

// Every policy, and every part of a block by itself.
std::vector<Choice> choices() {
  const auto parts = [](std::vector<Part> list) {
    return RecomputeConfig{.policy = Policy::kSelective, .parts = std::move(list)};
  };
  return {
      {"default", {}},
      {"norms", parts({Part::kNorms})},
      {"activation", parts({Part::kActivation})},
      {"mlp", parts({Part::kMlp})},
      {"attention", parts({Part::kAttention})},
      {"embedding", parts({Part::kEmbedding})},
      {"all parts", parts({Part::kNorms, Part::kActivation, Part::kMlp, Part::kAttention, Part::kEmbedding})},
      {"block", {.policy = Policy::kBlock}},
      {"block, nothing else", {.policy = Policy::kBlock, .parts = {}}},
      {"every 2nd", {.policy = Policy::kEveryK, .k = 2}},
      {"every 5th and mlp", {.policy = Policy::kEveryK, .parts = {Part::kMlp}, .k = 5}},
      {"sqrt", {.policy = Policy::kSqrt}},
      {"sqrt and embedding", {.policy = Policy::kSqrt, .parts = {Part::kEmbedding}}}};
}

// Runs one micro-batch with documents and ignored targets, and returns all of its
// gradients under a given plan.
class Passes {
 public:
  Passes(const ModelConfig& config, DType compute) : small_(config, compute, kB, config.context, 5) {}

  struct Result {
    LossSums sums;
    std::vector<std::vector<float>> grads;  // per parameter
    int64_t attentions = 0;                 // attention calls, in both directions, during backward
  };
  Result run(const RecomputePlan& plan) {
    const Transformer& model = small_.model;
    Activations activations(model, kB, T(), plan);
    Trace trace;
    Arena scratch("scratch", activations.saved.scratch_bytes());
    LayerContext ctx = small_.context(4 * T(), scratch);
    const MicroBatch batch = memory_.micro_batch();
    for (int u = 0; u < model.params().units(); ++u) {
      const Tensor grad = small_.store.buffers(u).grad;
      std::memset(grad.data, 0, grad.bytes());
    }
    Result result;
    result.sums = model.forward(ctx, batch, activations.saved, 1.0f);
    ctx.stream.trace = &trace;
    model.backward(ctx, batch, activations.saved);
    ctx.stream.trace = nullptr;
    for (const Trace::Phase& phase : trace.phases())
      if (phase.name == "attention") result.attentions = phase.calls;
    for (int u = 0; u < model.params().units(); ++u) {
      const Tensor grad = small_.store.buffers(u).grad;
      result.grads.emplace_back(grad.as<float>(), grad.as<float>() + grad.elements());
    }
    return result;
  }

 private:
  static constexpr int64_t kB = 2;
  int64_t T() const { return small_.model.config().context; }

  SmallModel small_;
  SmallBatch memory_ = random_batch(kB, T(), 61, 6);
};

struct Style {
  const char* name;
  ModelConfig config;
  DType compute;
};

class RecomputeGradients : public ::testing::TestWithParam<Style> {};

TEST_P(RecomputeGradients, AreBitwiseEqualForEveryPolicy) {
  Passes run(GetParam().config, GetParam().compute);
  const Passes::Result kept = run.run(recompute_plan({.policy = Policy::kNone}, kLayers));
  for (const Choice& choice : choices()) {
    const Passes::Result again = run.run(recompute_plan(choice.config, kLayers));
    EXPECT_EQ(again.sums.loss, kept.sums.loss) << choice.name;
    for (size_t u = 0; u < kept.grads.size(); ++u)
      EXPECT_TRUE(again.grads[u] == kept.grads[u]) << choice.name << ", unit " << u;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Models, RecomputeGradients,
    ::testing::Values(Style{"llama_f32", llama(), DType::f32}, Style{"llama_bf16", llama(), DType::bf16},
                      Style{"llama_f16", llama(), DType::f16}, Style{"gpt2_f32", gpt2(), DType::f32},
                      Style{"gpt2_bf16", gpt2(), DType::bf16}, Style{"speedrun_f32", speedrun(), DType::f32},
                      Style{"whole_speedrun_f32", whole_speedrun_style(llama()), DType::f32},
                      Style{"whole_speedrun_bf16", whole_speedrun_style(llama()), DType::bf16},
                      Style{"olmo2_bf16", olmo2_style(llama()), DType::bf16}),
    [](const auto& info) { return std::string(info.param.name); });

// Backward calls attention once per block, and once more if the block's attention forward must be
// recomputed. The topmost block that uses shared memory still finds its own activations there.
TEST(Recompute, RecomputesOnlyWhatWasOverwritten) {
  Passes run(llama(), DType::f32);
  const auto again = [&](const RecomputeConfig& config) {
    return run.run(recompute_plan(config, kLayers)).attentions - kLayers;
  };
  EXPECT_EQ(again({.policy = Policy::kNone}), 0);
  EXPECT_EQ(again({}), 0);
  EXPECT_EQ(again({.parts = {Part::kMlp}}), 0);
  EXPECT_EQ(again({.parts = {Part::kAttention}}), kLayers - 1);
  EXPECT_EQ(again({.policy = Policy::kBlock}), kLayers - 1);
  EXPECT_EQ(again({.policy = Policy::kEveryK, .k = 2}), 1);  // blocks 2 and 4 share memory
  EXPECT_EQ(again({.policy = Policy::kSqrt}), 3);            // segments of 1, 2 and 2 blocks
}

// There are N rows. All sizes are multiples of the arena's alignment, except that of is_correct.
TEST(Recompute, ActivationsTakeTheBytesOfTheFormula) {
  for (DType compute : {DType::f32, DType::bf16, DType::f16}) {
    const ModelConfig c = llama().resolved();
    const Transformer model(c, compute);
    const int64_t B = 2, T = 16, N = B * T, L = kLayers, e = static_cast<int64_t>(size_bytes(compute));
    const int64_t row = N * c.width * e;  // x, h or d
    const int64_t heads = N * (c.heads + 2 * c.kv_heads) * c.head_dim * e + N * c.heads * c.head_dim * e +
                          N * c.heads * 4;  // qkv, out, lse
    const int64_t pre = N * 2 * c.ffn * e, act = N * c.ffn * e;
    const int64_t fixed =
        2 * row + (2 * L + 1) * N * 4 + N * 4 + 64 + 128;  // x, d; rstd; losses; is_correct; sums
    const int64_t kept = 2 * row + heads + pre, all = kept + 2 * row + act;
    const auto bytes = [&](const RecomputeConfig& config) {
      return static_cast<int64_t>(Activations::size_bytes(model, B, T, recompute_plan(config, L))) - fixed;
    };
    const auto parts = [&](std::vector<Part> list) { return bytes({.parts = std::move(list)}); };
    EXPECT_EQ(bytes({.policy = Policy::kNone}), L * all);
    EXPECT_EQ(bytes({}), L * kept);
    EXPECT_EQ(parts({Part::kNorms}), L * (all - 2 * row));
    EXPECT_EQ(parts({Part::kActivation}), L * (all - act));
    EXPECT_EQ(parts({Part::kMlp}), L * all - (L - 1) * (row + pre + act));
    EXPECT_EQ(parts({Part::kAttention}), L * all - (L - 1) * (row + heads));
    EXPECT_EQ(parts({Part::kEmbedding}), L * all - row);
    EXPECT_EQ(parts({Part::kNorms, Part::kActivation, Part::kMlp}), L * (2 * row + heads) + row + pre);
    EXPECT_EQ(bytes({.policy = Policy::kBlock}), L * row + (heads + pre + 3 * row));
    EXPECT_EQ(bytes({.policy = Policy::kEveryK, .k = 2}), 3 * kept + 2 * row + (heads + pre + 3 * row));
    // Segments of 1, 2 and 2 blocks store three inputs, and the memory of two blocks
    // with one input between them.
    EXPECT_EQ(bytes({.policy = Policy::kSqrt}), 3 * row + 2 * (heads + pre + row) + row);
    // Evaluation keeps what its caller reads: losses, is_correct and sums.
    EXPECT_EQ(Activations::size_bytes(model, B, T, forward_only_plan(L)),
              static_cast<size_t>(N * 4 + 64 + 128));
  }
}

TEST(Recompute, BackwardThrowsIfNothingWasKept) {
  Passes run(llama(), DType::f32);
  EXPECT_THROW(run.run(forward_only_plan(kLayers)), Error);
}

TEST(Recompute, SummaryNamesWhatIsRecomputed) {
  EXPECT_EQ(recompute_plan({}, 5).summary(), "5 x (norms, activation)");
  EXPECT_EQ(recompute_plan({.policy = Policy::kNone}, 5).summary(), "5 x (nothing)");
  EXPECT_EQ(recompute_plan({.policy = Policy::kEveryK, .parts = {Part::kEmbedding}, .k = 3}, 5).summary(),
            "embedding, 2 x (nothing), 1 x (block), 2 x (nothing)");
  EXPECT_EQ(recompute_plan({.policy = Policy::kSqrt}, 5).summary(),
            "1 x (block, norms, activation), 4 x (segment)");
}

class FastestPlan : public ::testing::Test {
 protected:
  Transformer model{llama().resolved(), DType::f32};
  // The costs are like a CPU's: matrix products and attention are expensive, norms and activations cheap.
  BlockTimes times{.norm_s = 1,
                   .activation_s = 2,
                   .heads_s = 60,
                   .proj_s = 20,
                   .pre_s = 50,
                   .down_s = 25,
                   .embedding_s = 0.5};
  size_t bytes(const RecomputePlan& plan) const {
    const size_t slot = model.slot_bytes(2, 16, plan, model.all_units(), Device::kCpu);
    EXPECT_EQ(slot, Activations::size_bytes(model, 2, 16, plan));
    return slot;
  }
  RecomputePlan plan(size_t budget) const {
    return fastest_plan(kLayers, times, budget, [this](const RecomputePlan& p) { return bytes(p); });
  }
};

TEST_F(FastestPlan, KeepsEverythingThatFits) {
  const RecomputePlan none = recompute_plan({.policy = Policy::kNone}, kLayers);
  EXPECT_EQ(plan(bytes(none)).blocks, none.blocks);
  EXPECT_EQ(recompute_time_s(plan(bytes(none)), times), 0);
}

TEST_F(FastestPlan, IsNeverBeatenByAPolicyThatFits) {
  size_t tried = 0;
  for (size_t budget = bytes(recompute_plan({.policy = Policy::kBlock}, kLayers));
       budget < bytes(recompute_plan({.policy = Policy::kNone}, kLayers)); budget += 4096) {
    const RecomputePlan best = plan(budget);
    EXPECT_LE(bytes(best), budget);
    for (const Choice& choice : choices()) {
      const RecomputePlan other = recompute_plan(choice.config, kLayers);
      if (bytes(other) > budget) continue;
      ++tried;
      EXPECT_LE(recompute_time_s(best, times), recompute_time_s(other, times))
          << choice.name << ", " << budget;
    }
  }
  EXPECT_GT(tried, 50u);
}

TEST_F(FastestPlan, MixesChoicesBetweenBlocks) {
  const size_t selective = bytes(recompute_plan({}, kLayers));
  const RecomputePlan best = plan(selective - 1);
  EXPECT_LT(recompute_time_s(best, times),
            recompute_time_s(recompute_plan({.parts = {Part::kMlp}}, kLayers), times));
  EXPECT_GT(recompute_time_s(best, times), 0);
}

TEST_F(FastestPlan, RefusesABudgetThatNoPlanFits) {
  EXPECT_THAT(usage_error([&] { plan(1000); }), testing::HasSubstr("activations.budget = 1000"));
}

// The times are counted by hand. The topmost of the blocks that share memory recomputes nothing.
TEST_F(FastestPlan, TimeIsTheSumOfTheRecomputedOps) {
  const auto time_s = [&](const RecomputeConfig& config) {
    return recompute_time_s(recompute_plan(config, kLayers), times);
  };
  EXPECT_EQ(time_s({}), 5 * (2 * 1 + 2));
  EXPECT_EQ(time_s({.parts = {Part::kMlp}}), 4 * 50);
  EXPECT_EQ(time_s({.parts = {Part::kAttention, Part::kEmbedding}}), 4 * 60 + 0.5);
  EXPECT_EQ(time_s({.policy = Policy::kBlock}), 4 * (60 + 20 + 50) + 5 * 2);
  // The segments have 1, 2 and 2 blocks; the first block of the middle one runs to its end.
  EXPECT_EQ(time_s({.policy = Policy::kSqrt}), 3 * (60 + 20 + 50) + (2 + 25) + 5 * (2 * 1 + 2));
}

TEST(BlockTimes, AreMeasured) {
  const Transformer model(llama().resolved(), DType::bf16);
  ResidentStore store(model.params(), DType::bf16, false);
  init_params(store, 1);
  Stream stream;
  const BlockTimes times = model.time_block(store, 2, 16, stream);
  for (double time_s : {times.norm_s, times.activation_s, times.heads_s, times.pre_s, times.embedding_s})
    EXPECT_GT(time_s, 0);
  EXPECT_GE(times.proj_s, 0);
  EXPECT_GE(times.down_s, 0);
}

}  // namespace
}  // namespace ingot::test
