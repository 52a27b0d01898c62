// On several ranks: a bit that changes in the memory of one rank is found by comparing replicas, or by
// comparing the rank's memory with what its last update left, and the run ends with the bits of one that was
// left alone.
#include <gmock/gmock.h>

#include "ingot/config/config_toml.h"
#include "ingot/parallel/parallelize.h"
#include "tests/comm/mpi/shared_folder.h"
#include "tests/run/watched_run.h"

namespace ingot {
namespace {

using testing::HasSubstr;

namespace fs = std::filesystem;

struct Layouted {
  const char* name;
  std::vector<std::string> settings;
  const char* preset = "tiny-llama";
};

// The layouts for this number of ranks.
std::vector<Layouted> layouts(int ranks) {
  const std::string all = std::to_string(ranks), half = std::to_string(ranks / 2);
  const std::string often = "guard.replica_hash_every=1", watch = "guard.memory_watch=true";
  std::vector<Layouted> some = {{"replicas", {"parallel.dp=" + all}},
                                {"replicas in bf16", {"parallel.dp=" + all, "precision.compute=bf16", often}},
                                {"shards", {"parallel.fsdp=" + all, watch}},
                                {"muon", {"parallel.dp=" + all, watch}, "shakespeare-char-muon"}};
  if (ranks == 4) some.push_back({"both", {"parallel.dp=" + half, "parallel.fsdp=2", often}});
  return some;
}

class CorruptionTest : public testing::Test {
 protected:
  void SetUp() override {
    if (world->rank() == 0) {
      std::string text;
      for (int i = 0; i < 3000; ++i) text += i % 7 < 3 ? "the cat sat. " : "a dog ran. ";
      write_file(folder_ / "text.txt", text);
    }
    world->barrier("text");
  }

  RunConfig config(const Layouted& layout) const {
    ConfigBuilder builder;
    builder.add_source(layout.preset);
    builder.add_texts("data.train", {(folder_ / "text.txt").string()}, "--data");
    for (const char* setting :
         {"data.tokenizer=byte", "model.layers=2", "model.width=32", "model.heads=2", "model.kv_heads=2",
          "model.context=16", "train.batch_size=4", "train.grad_accum=2", "train.steps=100000",
          "schedule.warmup_steps=0", "eval.every=0", "sample.count=0", "guard.replica_hash_every=3"})
      builder.add_override(setting);
    for (const std::string& setting : layout.settings) builder.add_override(setting);
    return builder.build();
  }

  SharedFolder shared_;
  const fs::path folder_ = shared_.path;
};

TEST_F(CorruptionTest, EveryFlippedBitIsFoundAndLeavesNoTrace) {
  const int ranks = world->size();
  if (ranks == 1) GTEST_SKIP() << "state_watch_test has the cases of one rank";
  const RandomKey key{.seed = 5, .purpose = Purpose::kSample, .stream = 0, .step = 0};
  for (const Layouted& layout : layouts(ranks)) {
    SCOPED_TRACE(layout.name);
    const RunConfig c = config(layout);
    Mesh mesh = Mesh::make(*world, mesh_shape(c.parallel));
    WatchedRun calm(c, folder_ / layout.name / "calm", mesh);
    WatchedRun flipped(c, folder_ / layout.name / "flipped", mesh);
    constexpr int kFlips = 25;
    int found = 0;
    for (int i = 0; i < kFlips; ++i) {
      const auto number = static_cast<uint64_t>(i);
      const int64_t step = 8 * (i + 1) + static_cast<int64_t>(random_word(key, 2 * number) % 3);
      flipped.go_to(step);
      const auto culprit = static_cast<int>(random_word(key, 2 * number + 1) % static_cast<uint64_t>(ranks));
      if (world->rank() == culprit) flipped.flip(number);
      flipped.said.clear();
      flipped.go_to(8 * (i + 2));
      calm.go_to(8 * (i + 2));
      const bool is_found = flipped.said.find("silent corruption: the ") != std::string::npos;
      EXPECT_EQ(world->is_any(is_found), is_found) << "all ranks say the same";
      // The last bit of a moment may be rounded away in the next update, and then nothing is left to find.
      const bool is_harmless = !world->is_any(flipped.bytes() != calm.bytes());
      EXPECT_TRUE(is_found || is_harmless) << i;
      if (!is_found) continue;
      ++found;
      // Two replicas that are compared every few steps cannot tell which of them was wrong first: its
      // gradients have reached the other one.
      if (c.guard.watches_memory || c.parallel.dp > 2) {
        EXPECT_THAT(flipped.said, HasSubstr(fmt::format("memory of rank {}", culprit))) << i;
      } else if (c.guard.replica_hash_every == 1) {
        EXPECT_THAT(flipped.said, HasSubstr(fmt::format("shows that rank {} was wrong", culprit))) << i;
      }
    }
    const bool finds_all = c.guard.watches_memory || c.guard.replica_hash_every == 1;
    EXPECT_GE(found, finds_all ? kFlips : kFlips * 4 / 5);
    EXPECT_EQ(flipped.bytes(), calm.bytes());
    EXPECT_EQ(flipped.losses, calm.losses);
  }
}

}  // namespace
}  // namespace ingot

int main(int argc, char** argv) { return ingot::run_on_ranks(argc, argv); }
