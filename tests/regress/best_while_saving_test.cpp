// Seen: an evaluation that came while the best checkpoint was still being written was compared with the best
// one before it, and took its place although its loss was higher.
// Wanted: checkpoints/best has the lowest loss, however long a checkpoint takes.
#include <gmock/gmock.h>

#include "ingot/checkpoint/checkpoint_store.h"
#include "ingot/formats/metrics_log.h"
#include "tests/regress/run_program.h"

namespace ingot {
namespace {

class BestWhileSaving : public ProgramInFolder {};

TEST_F(BestWhileSaving, IsTheLowest) {
  std::string low, other;
  for (int i = 0; low.size() < 20'000; ++i) low += i * i % 7 < 3 ? "the cat sat. " : "a dog ran. ";
  for (int i = 0; i < 1500; ++i) other += static_cast<char>('A' + i * i % 26);
  write_file(path("text.txt"), low);
  write_file(path("other.txt"), other);
  // The loss on letters that are not trained on falls, and then rises. A step takes less than a checkpoint.
  const Outcome ended = run(small_run(
      "run", {"train.steps=60", "eval.every=1", "eval.max_tokens=256", "checkpoint.best=true",
              "checkpoint.keep=100", "optimizer.lr=3e-3", "data.val=[\"" + path("other.txt") + "\"]"}));
  ASSERT_EQ(ended.exit_code, 0) << ended.output;
  int64_t lowest = -1;
  double loss = INFINITY;
  for (const MetricsRow& row : read_metrics(path("run/metrics.jsonl")))
    if (const auto value = row.number("val_loss"); value && *value < loss) {
      loss = *value;
      lowest = static_cast<int64_t>(row.number("step").value_or(-1));
    }
  ASSERT_LT(lowest, 50) << "the loss must rise at the end";
  EXPECT_EQ(best_checkpoint(path("run/checkpoints"))->step, lowest);
}

}  // namespace
}  // namespace ingot
