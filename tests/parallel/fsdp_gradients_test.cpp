// The gradients of an FsdpStore, whose memory is used by one unit after the other.
#include <gtest/gtest.h>

#include <cmath>

#include "ingot/core/copy.h"
#include "ingot/parallel/fsdp.h"
#include "tests/nn/small_model.h"

namespace ingot {
namespace {

using test::Activations;

// Writes NaN over all gradients that open_gradients calls old, so a layer that adds to one of them is found
// out.
class SpoiledStore final : public FsdpStore {
 public:
  using FsdpStore::FsdpStore;
  OldGradients open_gradients(int unit) override {
    const OldGradients old = FsdpStore::open_gradients(unit);
    const Tensor grad = buffers(unit).grad;
    if (old == OldGradients::kAll) std::fill_n(grad.as<float>(), grad.elements(), NAN);
    return old;
  }
};

// Runs two micro-batches on one rank, forward of both before backward of the first (GPipe) or one after the
// other, and returns the gradients of each parameter.
std::vector<std::vector<float>> gradients(const ModelConfig& config, bool is_gpipe) {
  constexpr int64_t kB = 2;
  const Transformer model(config.resolved(), DType::f32);
  const std::unique_ptr<Communicator> shard = self_communicator("shard");
  Stream stream;
  SpoiledStore store(model.params(), *shard, {}, stream);
  ResidentStore weights(model.params(), DType::f32, false);
  init_params(weights, 11);
  for (const ParamShard& own : store.shards())
    copy(own.w, weights.master(own.id).reshape({own.elements()}), stream);
  store.refresh_compute(stream);
  Region region;
  Arena scratch("scratch", model.scratch_bytes(kB, config.context, true));
  Activations first(model, kB, config.context), second(model, kB, config.context);
  test::SmallBatch batch = test::random_batch(kB, config.context, 61, 5);
  LayerContext ctx{.params = store, .region = region, .scratch = scratch, .stream = stream, .dropout = {}};
  const auto forward = [&](Activations& a) { model.forward(ctx, batch.micro_batch(), a.saved, 0.1f); };
  const auto backward = [&](Activations& a) { model.backward(ctx, batch.micro_batch(), a.saved); };
  store.begin_step();
  store.begin_micro(false);
  forward(first);
  if (is_gpipe) forward(second);
  backward(first);
  store.begin_micro(true);
  if (!is_gpipe) forward(second);
  backward(second);
  store.wait_gradients();
  std::vector<std::vector<float>> all;
  for (const ParamShard& own : store.shards())
    all.emplace_back(own.grad.as<float>(), own.grad.as<float>() + own.elements());
  return all;
}

// Only the head's gradients of two micro-batches meet in one memory, where they add up in another order: at
// most one rounding of 2^-24 for each of the 64 tokens.
TEST(FsdpGradients, ForwardOfAllMicroBatchesMayPrecedeBackward) {
  ModelConfig tied = test::gpt2_style(test::small_llama(5)), untied = test::small_llama(5);
  tied.is_tied = true;
  untied.is_tied = false;
  untied.has_bias = true;
  // The head of this model has a table alone, and that of the next no parameters of its own.
  const ModelConfig table_alone = test::speedrun_style(test::small_llama(4));
  ModelConfig weightless = test::speedrun_style(test::small_llama(4));
  weightless.is_tied = true;
  for (ModelConfig config : {tied, untied, table_alone, weightless}) {
    config.dropout = 0;
    const auto got = gradients(config, true), want = gradients(config, false);
    const Transformer model(config.resolved(), DType::f32);
    for (size_t p = 0; p < want.size(); ++p) {
      double difference = 0, size = 0;
      for (size_t i = 0; i < want[p].size(); ++i) {
        difference += std::pow(static_cast<double>(got[p][i]) - static_cast<double>(want[p][i]), 2);
        size += std::pow(static_cast<double>(want[p][i]), 2);
      }
      EXPECT_GT(size, 0) << model.params()[static_cast<int>(p)].name;
      EXPECT_LE(std::sqrt(difference), 64 * 0x1p-24 * std::sqrt(size))
          << model.params()[static_cast<int>(p)].name;
    }
  }
}

TEST(FsdpGradients, GradientsThatWereNotScatteredAreNotOverwritten) {
  const ModelConfig config = test::small_llama(5);
  const Transformer model(config.resolved(), DType::f32);
  const std::unique_ptr<Communicator> shard = self_communicator("shard");
  Stream stream;
  FsdpStore store(model.params(), *shard, {}, stream);
  EXPECT_EQ(store.open_gradients(1), OldGradients::kAll);
  EXPECT_EQ(store.open_gradients(1), OldGradients::kNone);
  EXPECT_THROW(store.open_gradients(3), Error) << "blocks 1 and 3 share memory";
  EXPECT_THROW(store.start_reduction(3), Error) << "unit 3 was not opened";
  store.start_reduction(1);
  EXPECT_EQ(store.open_gradients(3), OldGradients::kAll);
}

}  // namespace
}  // namespace ingot
