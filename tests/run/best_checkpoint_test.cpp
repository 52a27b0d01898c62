// checkpoints/best: the checkpoint with the lowest validation loss (checkpoint.best).
#include <gmock/gmock.h>

#include <map>
#include <optional>

#include "ingot/checkpoint/checkpoint_store.h"
#include "ingot/core/error.h"
#include "ingot/formats/metrics_log.h"
#include "tests/run/training_fixture.h"

namespace ingot {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::Not;

class BestCheckpointTest : public TrainingTest {
 protected:
  // The folder is in memory if possible, because every checkpoint is flushed.
  BestCheckpointTest() {
    if (fs::is_directory("/dev/shm")) folder = in_memory_.emplace("/dev/shm").path();
    text = folder / "text.txt";
    run = folder / "run";
    checkpoints = run / "checkpoints";
  }
  std::optional<TemporaryFolder> in_memory_;
  fs::path run, checkpoints;

  RunConfig best_config() const {
    RunConfig c = config(DType::f32);
    c.data.tokenizer = "byte";
    c.model.dropout = 0;
    c.train.steps = 24;
    c.train.stop_at = 12;
    c.optimizer.lr = 1e-3;
    c.schedule.warmup_steps = 1;
    c.eval.every = 4;
    c.checkpoint.every = 0;
    c.checkpoint.every_minutes = 0;
    c.checkpoint.keep = 1;
    c.checkpoint.keeps_best = true;
    return c;
  }
  // The same run with steps that make the loss worse.
  RunConfig worse_config() const {
    RunConfig c = best_config();
    c.optimizer.lr = 10;
    c.train.stop_at = 0;
    return c;
  }
  std::map<int64_t, double> val_losses() const {
    std::map<int64_t, double> losses;
    for (const MetricsRow& row : read_metrics(run / "metrics.jsonl"))
      if (const auto loss = row.number("val_loss"))
        losses[static_cast<int64_t>(row.number("step").value_or(-1))] = *loss;
    return losses;
  }
  // The step of the lowest validation loss in the log.
  int64_t lowest_step() const {
    const auto losses = val_losses();
    return std::ranges::min_element(losses, {}, [](const auto& l) { return l.second; })->first;
  }
  int64_t best_step() const {
    const auto best = best_checkpoint(checkpoints);
    return best ? best->step : -1;
  }
  std::vector<int64_t> steps() const {
    std::vector<int64_t> out;
    for (const Checkpoint& checkpoint : list_checkpoints(checkpoints)) out.push_back(checkpoint.step);
    return out;
  }
};

TEST_F(BestCheckpointTest, StaysBesideTheNewestOneAndIsEvaluatedToItsLoss) {
  for (const bool is_async : {true, false}) {
    fs::remove_all(run);
    RunConfig c = best_config(), worse = worse_config();
    c.checkpoint.is_async = worse.checkpoint.is_async = is_async;
    c.eval.max_tokens = worse.eval.max_tokens = 0;
    train(c, run);
    EXPECT_EQ(best_step(), lowest_step());
    train(worse, run, true);
    ASSERT_LE(lowest_step(), 12) << "the second half of the run must be worse";
    EXPECT_EQ(best_step(), lowest_step());
    EXPECT_THAT(steps(), testing::ElementsAre(24, lowest_step()));
    EXPECT_THAT(said, HasSubstr(fmt::format("best checkpoint: step {}, validation loss", lowest_step())));
    EXPECT_THAT(read_file(run / "run.json"), HasSubstr(fmt::format("\"step\": {},", lowest_step())));
    EvalOptions options{.data = {text.string()}};
    const double of_best = evaluate_checkpoint(checkpoints / "best", options).result.loss;
    const double of_newest = evaluate_checkpoint(run, options).result.loss;
    EXPECT_LT(of_best, of_newest - 0.1);
  }
}

TEST_F(BestCheckpointTest, AnEvaluationThatImprovesSavesAndAWorseOneDoesNot) {
  RunConfig c = best_config();
  c.checkpoint.keep = 100;
  train(c, run);
  RunConfig worse = worse_config();
  worse.checkpoint.keep = 100;
  train(worse, run, true);
  std::vector<int64_t> expected;
  double best = INFINITY;
  for (const auto& [step, loss] : val_losses()) {
    if (loss < best || step == 12 || step == 24) expected.insert(expected.begin(), step);
    best = std::min(best, loss);
  }
  EXPECT_EQ(steps(), expected);
  EXPECT_LT(expected.size(), val_losses().size());
}

TEST_F(BestCheckpointTest, AResumeKnowsTheBestLossAgainAndRepairsTheLink) {
  train(best_config(), run);
  const int64_t best = best_step();
  fs::remove(checkpoints / "best");  // as after a kill between the checkpoint and its link
  train(worse_config(), run, true);
  EXPECT_EQ(best_step(), best);
  EXPECT_TRUE(fs::exists(checkpoints / fmt::format("step-{:09}", best)));
}

TEST_F(BestCheckpointTest, ADamagedBestCheckpointIsReportedAndReplaced) {
  RunConfig c = best_config();
  c.checkpoint.keep = 2;
  train(c, run);
  ASSERT_EQ(best_step(), 12);
  RunConfig worse = worse_config();
  worse.train.stop_at = 16;
  worse.checkpoint.keep = 2;
  train(worse, run, true);
  ASSERT_EQ(best_step(), 12);
  fs::resize_file(checkpoints / "step-000000012/model.safetensors", 100);
  worse.train.stop_at = 20;
  train(worse, run, true);
  EXPECT_THAT(said, HasSubstr("step-000000012: model.safetensors"));
  EXPECT_GT(best_step(), 12);
  EXPECT_TRUE(verify_checkpoint(checkpoints / "best").empty());
}

TEST_F(BestCheckpointTest, WhatLiesAtTheNameAndIsNoLinkIsLeftAlone) {
  train(best_config(), run);
  fs::remove(checkpoints / "best");
  make_folders(checkpoints / "best");
  write_file(checkpoints / "best/mine", "mine");
  train(worse_config(), run, true);
  EXPECT_EQ(read_file(checkpoints / "best/mine"), "mine");
  EXPECT_THAT(said, HasSubstr("is not the link that names the best checkpoint"));
}

TEST_F(BestCheckpointTest, IsNotMadeIfItIsTurnedOff) {
  RunConfig c = best_config();
  c.checkpoint.keeps_best = false;
  train(c, run);
  EXPECT_EQ(best_step(), -1);
  EXPECT_THAT(steps(), testing::ElementsAre(12));
}

}  // namespace
}  // namespace ingot
