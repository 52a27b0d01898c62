// Compares pipelines on several ranks with one rank that has the whole model.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "ingot/core/philox.h"
#include "ingot/parallel/pipeline.h"
#include "ingot/parallel/shard_sum.h"
#include "tests/comm/mpi/ranks_main.h"
#include "tests/nn/small_model.h"

namespace ingot {
namespace {

constexpr int64_t kB = 2, kT = 12, kMicros = 8, kVocab = 61;

ModelConfig llama() {
  ModelConfig c = {
      .layers = 6, .heads = 4, .kv_heads = 2, .width = 32, .context = kT, .vocab = kVocab, .dropout = 0.1};
  return c.resolved();
}

ModelConfig gpt2() {
  ModelConfig c = test::gpt2_style(llama());
  c.kv_heads = 4;
  c.is_tied = false;
  return c.resolved();
}

// Its stages hand on the first block's input, outputs of earlier blocks and value embeddings.
ModelConfig whole_speedrun() {
  ModelConfig c = llama();
  c = test::whole_speedrun_style(c);
  c.mlp_only_layers = {3};
  return c.resolved();
}

struct Batches {
  std::vector<int32_t> tokens, targets;
  std::vector<MicroBatch> micros;
  Batches() {
    const RandomKey key{.seed = 9, .purpose = Purpose::kSample, .stream = 0, .step = 0};
    const auto draw = [&](int64_t i) {
      return static_cast<int32_t>(random_word(key, static_cast<uint64_t>(i)) % kVocab);
    };
    for (int64_t n = 0; n < kMicros * kB * kT; ++n) {
      tokens.push_back(draw(n));
      targets.push_back(draw(n + 1));
    }
    for (int64_t m = 0; m < kMicros; ++m) {
      const int64_t first = m * kB * kT;
      micros.push_back({.tokens = Tensor(tokens.data() + first, DType::i32, {kB, kT}),
                        .targets = Tensor(targets.data() + first, DType::i32, {kB, kT}),
                        .doc_start = {}});
    }
  }
};

// The whole model, or only the units of this rank's stages.
struct Replica {
  Transformer model;
  StagePlan plan;
  ParamList list;
  Stream stream;
  std::unique_ptr<Communicator> ends;
  ResidentStore store;
  Region region;
  Arena scratch;
  Replica(const ModelConfig& config, DType compute, const StagePlan& given)
      : model(config, compute),
        plan(given),
        list(model.params().keeping([&](int unit) { return keeps(unit); })),
        store(list, compute),
        scratch("scratch", size_t{1} << 20) {  // more than any stage takes
    if (plan.ranks > 1) {
      store.place(model.params(),
                  {.is_owner = [this](int unit) { return plan.owner(unit) == world->rank(); }});
      const bool is_end = world->rank() == 0 || world->rank() == plan.ranks - 1;
      ends = world->split(is_end ? 0 : 1, world->rank(), "pp ends");
      if (plan.is_tied && is_end) store.add(tied_sum(store, plan, *ends));
    }
    init_params(store, 11);
    store.refresh_compute(stream);
  }
  bool keeps(int unit) const { return plan.keeps(plan.ranks > 1 ? world->rank() : 0, unit); }
  LayerContext context(int64_t micro) {
    return {.params = store,
            .region = region,
            .scratch = scratch,
            .stream = stream,
            .dropout = {.p = static_cast<float>(model.config().dropout),
                        .seed = 3,
                        .step = 7,
                        .first_row = micro * kB * kT}};
  }
  // Runs the step on one rank, with gradient accumulation.
  LossSums run_alone(const Batches& batches) {
    Arena measure("plan");
    model.make_saved(measure, kB, kT);
    Arena activations("activations", measure.peak_bytes());
    Transformer::Saved saved = model.make_saved(activations, kB, kT);
    LossSums sums;
    for (int64_t m = 0; m < kMicros; ++m) {
      LayerContext ctx = context(m);
      sums.add(model.forward(ctx, batches.micros[static_cast<size_t>(m)], saved, 0.1f));
      model.backward(ctx, batches.micros[static_cast<size_t>(m)], saved);
    }
    return sums;
  }
  std::vector<float> grads(int unit) {
    const Tensor g = store.buffers(unit).grad;
    return {g.as<float>(), g.as<float>() + g.elements()};
  }
};

// Returns the RMS of the difference relative to the RMS of `want`. It serves the tied table, whose
// gradient adds the sums of the head and of the embedding.
double error(const std::vector<float>& got, const std::vector<float>& want) {
  double difference = 0, size = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    difference += std::pow(static_cast<double>(got[i]) - static_cast<double>(want[i]), 2);
    size += std::pow(static_cast<double>(want[i]), 2);
  }
  return std::sqrt(difference / size);
}

StagePlan equal_split(const ModelConfig& config, int ranks, int chunks) {
  ParallelConfig parallel;
  parallel.pp = ranks;
  parallel.chunks = chunks;
  return plan_stages(config, parallel, {1, 1, 1});
}

void expect_one_rank_results(const ModelConfig& config, DType compute, PipelineKind kind, int chunks,
                             const RecomputeConfig& recompute) {
  const Batches batches;
  const PipelineShape shape{.kind = kind, .ranks = world->size(), .chunks = chunks, .micros = kMicros};
  Replica whole(config, compute, equal_split(config, 1, 1));
  Replica own(config, compute, equal_split(config, shape.ranks, chunks));
  const LossSums want = whole.run_alone(batches);
  Pipeline pipeline(
      own.model,
      {.shape = shape, .plan = own.plan, .recompute = recompute, .batch = {.batch = kB, .context = kT}},
      *world, own.stream);
  size_t next = 0;
  Batch batch;
  pipeline.run({.params = own.store,
                .stream = own.stream,
                .micros = kMicros,
                .grad_scale = 0.1f,
                .next = [&]() -> const Batch& {
                  const MicroBatch& micro = batches.micros[next++];
                  batch = {.tokens = micro.tokens, .targets = micro.targets, .doc_start = micro.doc_start};
                  return batch;
                },
                .context = [&](int64_t micro) { return own.context(micro); }});
  const LossSums got = pipeline.losses(own.stream);
  own.store.wait_gradients();
  EXPECT_EQ(next, batches.micros.size());
  if (world->rank() == world->size() - 1) {
    EXPECT_EQ(got.loss, want.loss);
    EXPECT_EQ(got.correct, want.correct);
  } else {
    EXPECT_EQ(got.counted, 0);
  }
  // Each stage runs backward over the micro-batches in order, so it has the bits of accumulation.
  for (int unit = 0; unit < own.model.params().units(); ++unit) {
    const std::vector<float> g = own.grads(unit);
    if (!own.keeps(unit))
      EXPECT_TRUE(g.empty()) << unit;
    else if (unit == 0 && config.is_tied)
      EXPECT_LE(error(g, whole.grads(unit)), 4 * 0x1p-24);  // 2 * kMicros additions in a different order
    else
      EXPECT_EQ(g, whole.grads(unit)) << unit;
  }
  EXPECT_GE(pipeline.pipeline()->wait_s, 0);
  EXPECT_LE(pipeline.pipeline()->wait_s, pipeline.pipeline()->step_s);
}

TEST(Pipeline, GradientsOfEveryScheduleEqualThoseOfOneRank) {
  for (const ModelConfig& config : {llama(), gpt2(), whole_speedrun()})
    for (DType compute : {DType::f32, DType::bf16}) {
      expect_one_rank_results(config, compute, PipelineKind::kGpipe, 1, {});
      expect_one_rank_results(config, compute, PipelineKind::kOneFOneB, 1, {});
      if (world->size() > 1 && 2 * world->size() <= 8)
        expect_one_rank_results(config, compute, PipelineKind::kInterleaved, 2, {});
    }
  if (world->size() == 2) expect_one_rank_results(llama(), DType::f32, PipelineKind::kInterleaved, 4, {});
}

TEST(Pipeline, RecomputedActivationsMatchOneRank) {
  for (const ModelConfig& config : {llama(), whole_speedrun()})
    for (RecomputePolicy policy : {RecomputePolicy::kNone, RecomputePolicy::kBlock, RecomputePolicy::kSqrt})
      expect_one_rank_results(
          config, DType::f32, PipelineKind::kOneFOneB, 1,
          {.policy = policy, .parts = {RecomputePart::kNorms, RecomputePart::kEmbedding}});
}

// 1F1B keeps the activations of p - r micro-batches on rank r, GPipe those of all micro-batches.
TEST(Pipeline, KeepsTheActivationsOfItsSchedule) {
  const Transformer model(gpt2(), DType::f32);
  Stream stream;
  const auto bytes = [&](PipelineKind kind) {
    return Pipeline(model,
                    {.shape = {.kind = kind, .ranks = world->size(), .micros = kMicros},
                     .plan = equal_split(gpt2(), world->size(), 1),
                     .batch = {.batch = kB, .context = kT}},
                    *world, stream)
        .arenas()
        .front()
        ->capacity_bytes();
  };
  // Every schedule also holds tokens, targets, documents and messages; they are subtracted.
  const size_t messages = kMicros * 3 * Arena::kAlign * ((kB * kT * 4 + Arena::kAlign - 1) / Arena::kAlign) +
                          2 * static_cast<size_t>(kB * kT * gpt2().width) * sizeof(float);
  const auto kept = static_cast<size_t>(std::min<int64_t>(kMicros, world->size() - world->rank()));
  EXPECT_EQ((bytes(PipelineKind::kOneFOneB) - messages) * kMicros,
            (bytes(PipelineKind::kGpipe) - messages) * kept);
}

}  // namespace
}  // namespace ingot

int main(int argc, char** argv) { return ingot::run_on_ranks(argc, argv); }
