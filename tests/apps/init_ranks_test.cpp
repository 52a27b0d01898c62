// Starting from a folder of Hugging Face on several ranks: each rank reads its own shards, and together they
// hold the folder's weights.
#include <algorithm>

#include "ingot/formats/safetensors.h"
#include "tests/apps/launch_fixture.h"

namespace ingot {
namespace {

namespace fs = std::filesystem;

class InitRanksTest : public LaunchTest {
 protected:
  // Trains for one step at a rate that leaves the weights as they are, on `ranks` ranks.
  std::string start(const std::string& name, int ranks, const std::string& layout) const {
    const char* golden = INGOT_TEST_DATA "/hf/qwen3";
    const std::string text =
        "printf 'the quick brown fox jumps over the lazy dog %.0s' $(seq 40) > words.txt; ";
    return text + fmt::format(
                      "(run {} train --init {} --data words.txt --out {} --set train.steps=1 --set "
                      "optimizer.lr=1e-30 --set schedule.warmup_steps=0 --set sample.count=0 --set "
                      "train.batch_size=2 --set train.threads=1 {})",
                      ranks, golden, path(name), layout);
  }
};

TEST_F(InitRanksTest, EveryLayoutHoldsTheWeightsOfTheFolder) {
  ASSERT_EQ(bash(start("one", 1, "")).exit_code, 0);
  const SafetensorsFile want(folder_ / "one/checkpoints/step-000000001/model.safetensors");
  for (const std::string& layout : std::vector<std::string>{"dp", "fsdp", "tp", "pp"}) {
    const Outcome outcome = bash(start(layout, 2, "--set parallel." + layout + "=2"));
    ASSERT_EQ(outcome.exit_code, 0) << outcome.output;
    const SafetensorsFile got(folder_ / layout / "checkpoints/step-000000001/model.safetensors");
    ASSERT_EQ(got.tensors().size(), want.tensors().size()) << layout;
    for (const SafetensorsEntry& entry : want.tensors()) {
      const SafetensorsEntry& other = got.get(entry.name);
      EXPECT_TRUE(std::ranges::equal(entry.bytes, other.bytes)) << layout << ": " << entry.name;
    }
  }
}

}  // namespace
}  // namespace ingot
