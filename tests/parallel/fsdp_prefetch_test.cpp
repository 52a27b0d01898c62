// The order in which an FsdpStore gathers units.
#include <gmock/gmock.h>

#include <algorithm>
#include <string>

#include "ingot/core/error.h"
#include "ingot/nn/transformer.h"
#include "ingot/parallel/fsdp.h"

namespace ingot {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// Rank 0 of two; it records the names of the gathers.
class RecordedGroup final : public PlannedCommunicator {
 public:
  RecordedGroup() : PlannedCommunicator("shard", 0, 2) {}
  std::vector<std::string> take() { return std::exchange(gathers_, {}); }

 private:
  uint64_t start(const CommOperation& o) override {
    if (o.kind == CommOperation::Kind::kAllGather) gathers_.emplace_back(o.name);
    return PlannedCommunicator::start(o);
  }
  std::vector<std::string> gathers_;
};

class FsdpPrefetch : public ::testing::Test {
 protected:
  // The embedding is unit 0, the blocks are units 1 to 5, and the head is unit 6.
  const ModelConfig config{.layers = 5, .heads = 2, .kv_heads = 2, .width = 16, .context = 8, .vocab = 64};
  const Transformer model{config.resolved(), DType::f32};
  RecordedGroup shard;
  Stream stream;
};

TEST_F(FsdpPrefetch, TwoUnitsAreUnderWayWhileOneComputes) {
  FsdpStore store(model.params(), shard, {}, stream);
  store.wait_weights(0);
  EXPECT_THAT(shard.take(), ElementsAre("gather unit 0"));
  // Forwards, as the model calls it: block 1, then block 2, and so on.
  store.prefetch(2);
  EXPECT_THAT(shard.take(), ElementsAre("gather unit 1", "gather unit 2", "gather unit 3"));
  store.wait_weights(1);
  store.prefetch(3);
  EXPECT_THAT(shard.take(), ElementsAre("gather unit 4"));
  store.wait_weights(2);
  store.prefetch(4);
  store.wait_weights(3);
  store.prefetch(5);
  EXPECT_THAT(shard.take(), ElementsAre("gather unit 5", "gather unit 6"));
  store.wait_weights(4);
  store.prefetch(6);
  store.wait_weights(5);
  store.wait_weights(6);
  EXPECT_THAT(shard.take(), IsEmpty());
  // Backwards: blocks 5, 4 and 3 are still there.
  store.prefetch(4);
  store.wait_weights(5);
  EXPECT_THAT(shard.take(), IsEmpty());
  store.prefetch(3);
  store.wait_weights(4);
  EXPECT_THAT(shard.take(), ElementsAre("gather unit 2"));
  store.prefetch(2);
  store.wait_weights(3);
  EXPECT_THAT(shard.take(), ElementsAre("gather unit 1"));
  store.prefetch(1);
  store.wait_weights(2);
  store.prefetch(0);
  store.wait_weights(1);
  store.wait_weights(0);
  EXPECT_THAT(shard.take(), IsEmpty());
}

// A rank can replay a pass as a CUDA graph while another runs the same pass without one, so both gather the
// same units.
TEST_F(FsdpPrefetch, APassAfterAReplayedOneGathersWhatTheCapturedPassDid) {
  FsdpStore store(model.params(), shard, {}, stream);
  const auto pass = [&] {
    store.wait_messages();
    shard.take();
    for (int unit = 0; unit <= 6; ++unit) {
      store.prefetch(unit);
      store.wait_weights(unit);
    }
    for (int unit = 6; unit >= 0; --unit) {
      store.prefetch(unit - 1);
      store.wait_weights(unit);
    }
    store.wait_messages();
    return shard.take();
  };
  store.begin_graphs();
  pass();
  const StoreState after_first = store.state();
  const std::vector<std::string> captured = pass();
  store.wait_gradients();  // the update follows
  store.begin_graphs();
  store.replayed(after_first);
  EXPECT_EQ(pass(), captured);
}

// The weights of a block are there from wait_weights until those of another block take its memory.
TEST_F(FsdpPrefetch, AWeightThatWasNotAwaitedIsRefused) {
  FsdpStore store(model.params(), shard, {}, stream);
  const auto of_block = [&](int unit) {
    for (size_t id = 0; id < model.params().specs().size(); ++id)
      if (model.params().specs()[id].unit == unit) return static_cast<int>(id);
    return -1;
  };
  EXPECT_THROW(store.weight(of_block(1)), Error);
  store.prefetch(1);
  EXPECT_THROW(store.weight(of_block(1)), Error) << "its gather may not have ended";
  store.wait_weights(1);
  EXPECT_TRUE(store.weight(of_block(1)));
  store.wait_weights(4);  // blocks 1 and 4 have one slot
  EXPECT_THROW(store.weight(of_block(1)), Error);
  store.refresh_compute(stream);
  EXPECT_THROW(store.weight(of_block(4)), Error) << "the masters have changed";
}

// A unit that is in use and the two that are gathered meanwhile have different memory.
TEST_F(FsdpPrefetch, ThreeBlocksHaveMemoryAtOneTime) {
  FsdpStore store(model.params(), shard, {}, stream);
  const auto memory = [&](int unit) { return store.buffers(unit).compute.data; };
  for (int unit = 1; unit <= 3; ++unit) {
    EXPECT_NE(memory(unit), memory(unit + 1));
    EXPECT_NE(memory(unit), memory(unit + 2));
    EXPECT_NE(memory(unit), memory(0));
    EXPECT_NE(memory(unit), memory(6));
  }
}

}  // namespace
}  // namespace ingot
