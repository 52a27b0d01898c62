// Compares DDP on several ranks with one rank that sees the whole batch.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "ingot/core/philox.h"
#include "ingot/nn/transformer.h"
#include "ingot/parallel/replica_sum.h"
#include "tests/comm/mpi/ranks_main.h"
#include "tests/nn/small_model.h"

namespace ingot {
namespace {

constexpr int64_t kBatch = 8;  // sequences per step over all ranks

ModelConfig llama() {
  ModelConfig c = {
      .layers = 3, .heads = 4, .kv_heads = 2, .width = 32, .context = 16, .vocab = 61, .is_tied = true};
  return c.resolved();
}

ModelConfig gpt2() {
  ModelConfig c = test::gpt2_style(llama());
  c.kv_heads = 4;
  c.is_tied = false;
  return c.resolved();
}

// A model with the memory that one rank needs for it.
struct Replica {
  Transformer model;
  ResidentStore store;
  Stream stream;
  Region region;
  Arena scratch, activations;

  Replica(const ModelConfig& config, DType compute, int64_t rows)
      : model(config, compute),
        store(model.params(), compute),
        scratch("scratch", scratch_bytes(rows)),
        activations("activations", activation_bytes(rows)) {
    init_params(store, 11);
    store.refresh_compute(stream);
  }
  // Makes the store sum its gradients over all ranks.
  const ReplicaSum& reduce(const DdpConfig& config) {
    std::unique_ptr<ReplicaSum> sum = replica_sum(store, *world, config, stream);
    const ReplicaSum& added = *sum;
    store.add(std::move(sum));
    return added;
  }
  size_t scratch_bytes(int64_t rows) const {
    size_t most = 0;  // fewer rows may use larger chunks
    for (int64_t r = 1; r <= rows; ++r)
      most = std::max(most, model.scratch_bytes(r, model.config().context, true));
    return most;
  }
  size_t activation_bytes(int64_t rows) const {
    Arena measure("plan");
    model.make_saved(measure, rows, model.config().context);
    return measure.peak_bytes();
  }
  // Adds the gradients of sequences [begin, end) of the step's batch and returns their loss.
  double run(ParamStore& params, int64_t begin, int64_t end) {
    const int64_t T = model.config().context, n = (end - begin) * T;
    std::vector<int32_t> tokens(static_cast<size_t>(n)), targets(static_cast<size_t>(n));
    for (int64_t i = 0; i < n; ++i) {
      const RandomKey key{.seed = 3, .purpose = Purpose::kSample, .stream = 0, .step = 0};
      const int64_t at = (begin + i / T) * (T + 1) + i % T;  // each sequence takes T + 1 tokens of one stream
      const auto draw = [&](int64_t k) {
        return static_cast<int32_t>(random_word(key, static_cast<uint64_t>(k)) % 61);
      };
      tokens[static_cast<size_t>(i)] = draw(at);
      targets[static_cast<size_t>(i)] = draw(at + 1);
    }
    const MicroBatch batch{.tokens = Tensor(tokens.data(), DType::i32, {end - begin, T}),
                           .targets = Tensor(targets.data(), DType::i32, {end - begin, T}),
                           .doc_start = {}};
    const Arena::Mark mark = activations.mark();
    Transformer::Saved saved = model.make_saved(activations, end - begin, T);
    LayerContext ctx{.params = params, .region = region, .scratch = scratch, .stream = stream, .dropout = {}};
    const LossSums sums = model.forward(ctx, batch, saved, 1.0f / static_cast<float>(kBatch * T));
    model.backward(ctx, batch, saved);
    activations.release_to(mark);
    return sums.loss;
  }
  std::vector<float> grads() {
    std::vector<float> all;
    for (size_t p = 0; p < model.params().specs().size(); ++p) {
      const Tensor g = store.grad(static_cast<int>(p));
      all.insert(all.end(), g.as<float>(), g.as<float>() + g.elements());
    }
    return all;
  }
};

// Returns the RMS of the difference relative to the RMS of `want`.
double error(const std::vector<float>& got, const std::vector<float>& want) {
  double difference = 0, size = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    difference += std::pow(static_cast<double>(got[i]) - want[i], 2);
    size += std::pow(static_cast<double>(want[i]), 2);
  }
  return std::sqrt(difference / size);
}

// Runs this rank's sequences of a step in `micros` micro-batches.
void run_share(Replica& replica, int64_t micros) {
  const int64_t share = kBatch / world->size(), rows = share / micros;
  for (int64_t m = 0; m < micros; ++m) {
    replica.store.begin_micro(m + 1 == micros);
    const int64_t begin = world->rank() * share + m * rows;
    replica.run(replica.store, begin, begin + rows);
  }
  replica.store.wait_gradients();
}

std::vector<float> whole_batch(const ModelConfig& config, DType compute) {
  Replica one(config, compute, kBatch);
  one.run(one.store, 0, kBatch);
  return one.grads();
}

void expect_equal_on_all_ranks(std::vector<float> values) {
  std::vector<float> lowest = values;
  const Shape shape{std::ssize(values)};
  world->all_reduce("lowest", Tensor(lowest.data(), DType::f32, shape), ReduceOp::kMin);
  world->all_reduce("highest", Tensor(values.data(), DType::f32, shape), ReduceOp::kMax);
  EXPECT_EQ(lowest, values);
}

TEST(Ddp, GradientsEqualThoseOfTheWholeBatch) {
  for (const ModelConfig& config : {llama(), gpt2()}) {
    for (int64_t bucket_bytes : {1, 20'000, 1 << 30}) {  // one unit per bucket, several, all units
      Replica own(config, DType::f32, kBatch);
      const ReplicaSum& sum = own.reduce({.bucket_bytes = bucket_bytes});
      if (bucket_bytes == 1) {
        EXPECT_EQ(std::ssize(sum.buckets()), own.model.params().units());
      }
      if (bucket_bytes == 1 << 30) {
        EXPECT_EQ(sum.buckets().size(), 1u);
      }
      const int64_t share = kBatch / world->size();
      run_share(own, share >= 2 ? 2 : 1);
      // The sums have a different order: some hundred roundings of 2^-24, in either direction.
      EXPECT_LE(error(own.grads(), whole_batch(config, DType::f32)), 20 * 0x1p-24);
      expect_equal_on_all_ranks(own.grads());
      EXPECT_LE(sum.arena()->capacity_bytes(), 64 * 1024u);  // f32 gradients need no payload buffer
    }
  }
}

// Returns the gradients of a step that are reduced with the payload types of `config`.
std::vector<float> gradients_in(const DdpConfig& config) {
  Replica own(llama(), DType::bf16, kBatch);
  own.reduce(config);
  run_share(own, 1);
  expect_equal_on_all_ranks(own.grads());
  return own.grads();
}

// Each rank rounds what it sends, and the sum is rounded again: in bf16 by at most 2^-9 of the value; in
// f16 by 2^-12, or, for small values (most rows of the table), by half of f16's smallest number.
TEST(Ddp, ShortPayloadsCostOneRounding) {
  const std::vector<float> exact = gradients_in({.bucket_bytes = 20'000});
  double size = 0;
  for (const float g : exact) size += std::pow(static_cast<double>(g), 2);
  const double smallest = 0x1p-25 * std::sqrt(static_cast<double>(exact.size()) / size);
  for (const auto& [payload, rounding] : {std::pair{DType::bf16, 0x1p-9}, {DType::f16, 0x1p-12 + smallest}}) {
    const double got =
        error(gradients_in({.bucket_bytes = 20'000, .payload = {.blocks = payload, .ends = payload}}), exact);
    EXPECT_LE(got, 2 * rounding) << name(payload);
    EXPECT_GT(got, 0) << name(payload);
  }
}

// payload applies to the blocks only: the gradients of the embedding (the first unit) and of the head's
// norm (the last unit) are not rounded, and those of all blocks are.
TEST(Ddp, EmbeddingAndHeadMayHaveAnotherPayload) {
  const std::vector<float> exact = gradients_in({.bucket_bytes = 1 << 20});
  const std::vector<float> got = gradients_in({.bucket_bytes = 1 << 20, .payload = {.blocks = DType::bf16}});
  const Transformer model(llama(), DType::bf16);
  size_t i = 0;
  for (const ParamSpec& spec : model.params().specs()) {
    const bool is_end = spec.unit == 0 || spec.unit + 1 == model.params().units();
    int64_t differences = 0;
    for (int64_t k = 0; k < spec.elements(); ++k, ++i) differences += got[i] != exact[i];
    EXPECT_EQ(differences == 0, is_end) << spec.name;
  }
}

// Over many steps with the same gradient, the mean of the reduced gradients comes closer to it than one
// rounding allows.
TEST(Ddp, ErrorFeedbackCorrectsRounding) {
  const auto mean_error = [](DType payload, bool has_feedback) {
    Replica own(llama(), DType::f32, kBatch);
    own.reduce({.bucket_bytes = 20'000,
                .payload = {.blocks = payload, .ends = payload, .has_error_feedback = has_feedback}});
    constexpr int kSteps = 16;
    std::vector<float> mean;
    for (int step = 0; step < kSteps; ++step) {
      for (int unit = 0; unit < own.model.params().units(); ++unit) {
        const Tensor g = own.store.buffers(unit).grad;
        std::fill_n(g.as<float>(), g.elements(), 0.0f);
      }
      run_share(own, 1);
      const std::vector<float> g = own.grads();
      mean.resize(g.size());
      for (size_t i = 0; i < g.size(); ++i) mean[i] += g[i] / kSteps;
    }
    return error(mean, whole_batch(llama(), DType::f32));
  };
  for (const DType payload : {DType::bf16, DType::f16})
    EXPECT_LT(mean_error(payload, true), 0.75 * mean_error(payload, false)) << name(payload);
}

// A loss scale that is too large makes gradients infinite once. That step is skipped, and the next one
// must be correct.
TEST(Ddp, ErrorFeedbackForgetsGradientsThatOverflowed) {
  const DdpConfig config = {
      .bucket_bytes = 20'000,
      .payload = {.blocks = DType::bf16, .ends = DType::bf16, .has_error_feedback = true}};
  const auto step_from = [](Replica& own, float start) {
    for (int unit = 0; unit < own.model.params().units(); ++unit) {
      const Tensor g = own.store.buffers(unit).grad;
      std::fill_n(g.as<float>(), g.elements(), start);
    }
    run_share(own, 1);
    return own.grads();
  };
  Replica own(llama(), DType::f32, kBatch), fresh(llama(), DType::f32, kBatch);
  own.reduce(config);
  fresh.reduce(config);
  step_from(own, std::numeric_limits<float>::infinity());
  EXPECT_EQ(step_from(own, 0.0f), step_from(fresh, 0.0f));
}

TEST(Ddp, AMissingUnitIsAnError) {
  Replica own(llama(), DType::f32, 1);
  own.reduce({.bucket_bytes = 1});
  own.store.begin_micro(true);
  EXPECT_THROW(own.store.wait_gradients(), Error);
  EXPECT_THROW(DdpConfig({.payload = {.has_error_feedback = true}}).validate(), Error);
}

}  // namespace
}  // namespace ingot

int main(int argc, char** argv) { return ingot::run_on_ranks(argc, argv); }
