// Fixture for tests of training on several ranks: a small task, models and layouts.
#pragma once

#include <cmath>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "ingot/core/philox.h"
#include "ingot/core/staging.h"
#include "ingot/optim/rules/rule_list.h"
#include "ingot/parallel/parallelize.h"
#include "ingot/parallel/stage_plan.h"
#include "ingot/train/trainer.h"
#include "tests/comm/mpi/ranks_main.h"
#include "tests/data/all_tokens.h"
#include "tests/nn/small_model.h"
#include "tests/train/old_gradients.h"

namespace ingot {

inline constexpr int kSteps = 30;
inline constexpr size_t kTokens = 6000, kPlace = 1234;
inline constexpr uint16_t kRare = 120;  // a token that occurs once

// Returns tokens below 100, and kRare once. Half of them follow from the token before, so that there is
// something to learn.
inline TokenSource chained_tokens() {
  std::vector<uint16_t> tokens(kTokens);
  const RandomKey key{.seed = 5, .purpose = Purpose::kSample, .stream = 0, .step = 0};
  for (size_t i = 0; i < tokens.size(); ++i) {
    const uint32_t word = random_word(key, i);
    const bool follows = i > 0 && word % 2 == 0;
    tokens[i] = static_cast<uint16_t>(follows ? (tokens[i - 1] * 7 + 3) % 100 : word / 2 % 100);
  }
  tokens[kPlace] = kRare;
  return source_of(std::move(tokens));
}

inline RunConfig llama() {
  RunConfig c;
  c.model = {
      .layers = 3, .heads = 4, .kv_heads = 2, .width = 32, .context = 16, .vocab = 128, .dropout = 0.1};
  c.train.batch_size = 4;
  c.train.grad_accum = 4;
  c.optimizer.lr = 2e-3;
  return c;
}

inline RunConfig gpt2() {
  RunConfig c = llama();
  c.model.layers = 2;
  c.model.kv_heads = 4;
  c.model = test::gpt2_style(c.model);
  c.model.is_tied = true;
  c.model.dropout = 0;
  return c;
}

inline RunConfig with_muon(RunConfig c, DType iteration) {
  GroupConfig matrices{.roles = {ParamRole::kMatrix}};
  matrices.rule.kind = "muon";
  matrices.rule.options.set(&Muon::Options::newton_schulz_dtype, iteration);
  matrices.lr = 0.01;
  c.optimizer.groups = {matrices};
  return c;
}

// Trains adapters of all linears, or of those of the given names.
inline RunConfig with_adapters(RunConfig c, std::vector<std::string> targets = {}) {
  c.model.lora = {.rank = 8, .alpha = 16, .targets = std::move(targets)};
  return c;
}

// Uses one rule for all parameters, with a learning rate at which the loss falls.
inline RunConfig with_rule(RunConfig c, const std::string& kind) {
  c.optimizer.rule.kind = kind;
  if (kind == "sgd") c.optimizer.lr = 0.5;
  if (kind == "momentum") c.optimizer.lr = 0.05;
  if (kind == "lion") c.optimizer.lr = 1e-3;
  if (kind == "adafactor") c.optimizer.rule.options.set(&Adafactor::Options::relative_step, false);
  return c;
}

inline RunConfig with_8bit(RunConfig c) {
  c.optimizer.rule.kind = "adamw8bit";
  return c;
}

inline ParallelConfig replicas() {
  ParallelConfig c;
  c.dp = world->size();
  return c;
}

inline ParallelConfig shards(bool keeps_units = false) {
  ParallelConfig c;
  c.fsdp = world->size();
  c.keeps_units = keeps_units;
  return c;
}

// Replicas of two shards each, if there are at least two ranks.
inline ParallelConfig replicas_of_shards() {
  ParallelConfig c;
  c.fsdp = std::min(2, world->size());
  c.dp = world->size() / c.fsdp;
  return c;
}

// Up to tp tensor-parallel ranks; the remaining ranks are replicas. with_many_heads() has heads for eight.
inline ParallelConfig sharing(int tp, bool splits_tokens = true) {
  ParallelConfig c;
  c.tp = std::min(tp, world->size());
  c.dp = world->size() / c.tp;
  c.splits_tokens = splits_tokens;
  return c;
}

inline ParallelConfig sharing_of_shards() {
  ParallelConfig c = sharing(2);
  std::swap(c.dp, c.fsdp);
  return c;
}

// Up to pp stages, each on up to tp tensor-parallel ranks; the remaining ranks are replicas.
inline ParallelConfig stages(int pp, PipelineKind schedule, int chunks = 1, int tp = 1) {
  ParallelConfig c;
  c.pp = std::min(pp, world->size());
  c.tp = std::min(tp, world->size() / static_cast<int>(c.pp));
  c.dp = world->size() / static_cast<int>(c.pp * c.tp);
  c.schedule = schedule;
  if (c.pp > 1) c.chunks = chunks;
  return c;
}

inline RunConfig with_many_heads(RunConfig c) {
  c.model.heads = c.model.kv_heads = 8;
  return c;
}

// The model has eight units, enough for eight stages, and enough micro-batches for every schedule.
inline RunConfig for_stages(RunConfig c) {
  c = with_many_heads(c);
  c.model.layers = 6;
  c.train.batch_size = 2;
  c.train.grad_accum = 8;
  return c;
}

// Adapters start at zero, where half of their gradients are zero too. This moves them elsewhere, by the place
// of each element in its parameter.
inline void move_adapters(Trainer& trainer) {
  Stream& stream = *trainer.layout().stream;
  TrainingStore& params = trainer.params();
  params.expand_masters(stream);
  Staging staging;
  for (const ParamShard& shard : params.shards()) {
    const ParamSpec& spec = params.list()[shard.id];
    const Tensor values = shard.values();
    if (!spec.name.ends_with(".lora_b") || shard.elements() == 0) continue;
    float* w = staging.room(values).as<float>();
    for (const Rect& rect : rects_of(spec, shard.begin, shard.end))
      for (int64_t i = 0; i < rect.elements(); ++i) {
        const int64_t row = rect.row + i / rect.columns, column = rect.column + i % rect.columns;
        const RandomKey key{.seed = 7, .purpose = Purpose::kSample, .stream = 3, .step = 0};
        const uint32_t word = random_word(key, static_cast<uint64_t>(row * spec.full_shape()[1] + column));
        *w++ = static_cast<float>(word % 1000) * 1e-4f - 0.05f;
      }
    staging.write(values, stream);
  }
  params.refresh_compute(stream);
}

// A trainer on chained_tokens(), on this rank only or, with a mesh, on all ranks.
struct Training {
  explicit Training(const RunConfig& c) : Training(c, parallelize(c)) {}
  // Stages are cut by nominal costs, as the plan cuts them. Measured costs differ from time to time, most of
  // all on a busy machine.
  Training(const RunConfig& c, Mesh& mesh)
      : Training(c, parallelize(c, mesh, Backing::kMemory, nominal_unit_costs(c.model.resolved()))) {}
  Training(const RunConfig& c, Layout layout)
      : config(c),
        trainer(config, std::move(layout)),
        loader(source, sampler,
               {.shape = trainer.layout().batch_shape,
                .readers = trainer.layout().data_shard.ranks,
                .reader = trainer.layout().data_shard.rank,
                .prefetch = 1}) {
    trainer.initialise();
    if (config.model.lora.rank > 0) move_adapters(trainer);
  }
  std::vector<double> losses(int steps = kSteps) {
    std::vector<double> all;
    for (int step = 0; step < steps; ++step) {
      all.push_back(trainer.step(loader, {.lr = config.optimizer.lr}).loss);
      spoil_old_gradients(trainer);
    }
    return all;
  }

  RunConfig config;
  TokenSource source = chained_tokens();
  Trainer trainer;
  Sampler sampler{SampleOrder::kRandom, 1, kTokens, config.model.context};
  Loader loader;
};

// Returns the full tensors, on every rank, of which this rank has shards; values: those of its shards, in
// host memory. Each element's bits come from its first replica, and all others must have the same.
inline std::vector<std::vector<float>> assembled(TrainingStore& params,
                                                 const std::vector<std::vector<float>>& values) {
  const std::vector<ParamShard> shards = params.shards();
  std::vector<int32_t> bits;
  // Calls f(values, bits, bytes) for every row of this rank's shards.
  const auto for_each_row = [&](const auto& f) {
    int64_t first = 0;
    for (size_t i = 0; i < shards.size(); ++i) {
      const ParamSpec& spec = params.list()[shards[i].id];
      const int64_t C = spec.is_vector() ? 1 : spec.full_shape()[1];
      int64_t here = 0;
      for (const Rect& rect : rects_of(spec, shards[i].begin, shards[i].end))
        for (int64_t r = 0; r < rect.rows; ++r, here += rect.columns)
          f(i, here, bits.data() + first + (rect.row + r) * C + rect.column,
            static_cast<size_t>(rect.columns) * sizeof(float));
      first += spec.full_shape().elements();
    }
  };
  int64_t elements = 0;
  for (const ParamShard& shard : shards) elements += params.list()[shard.id].full_shape().elements();
  bits.resize(static_cast<size_t>(elements));
  for_each_row([&](size_t i, int64_t here, int32_t* whole, size_t bytes) {
    const Replicas holders = params.replicas(shards[i].id);
    const int64_t copies = params.list()[shards[i].id].copies(shards[i].begin, shards[i].end);
    if (holders.count > 0 && holders.index == 0 && here < shards[i].elements() - copies)
      std::memcpy(whole, values[i].data() + here, bytes);
  });
  world->all_reduce("whole tensors", Tensor(bits.data(), DType::i32, {elements}));
  for_each_row([&](size_t i, int64_t here, const int32_t* whole, size_t bytes) {
    EXPECT_EQ(std::memcmp(whole, values[i].data() + here, bytes), 0)
        << params.list()[shards[i].id].name << " differs between ranks";
  });
  std::vector<std::vector<float>> whole;
  const int32_t* from = bits.data();
  for (const ParamShard& shard : shards) {
    whole.emplace_back(static_cast<size_t>(params.list()[shard.id].full_shape().elements()));
    std::memcpy(whole.back().data(), from, whole.back().size() * sizeof(float));
    from += whole.back().size();
  }
  return whole;
}

// Returns all full masters, on every rank.
inline std::vector<float> weights(Trainer& trainer) {
  TrainingStore& params = trainer.params();
  std::vector<std::vector<float>> values;
  params.expand_masters(*trainer.layout().stream);
  for (const ParamShard& shard : params.shards()) {
    const Tensor w = params.is_sharded() ? shard.values() : params.master(shard.id);
    values.emplace_back(w.as<float>(), w.as<float>() + w.elements());
  }
  if (params.is_sharded()) values = assembled(params, values);
  std::vector<float> all;
  for (const std::vector<float>& whole : values) all.insert(all.end(), whole.begin(), whole.end());
  params.refresh_compute(*trainer.layout().stream);
  return all;
}

}  // namespace ingot
