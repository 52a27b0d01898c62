// Seen: a single failed save (a full disk, a folder that is missing for a while) ended the training with
// exit code 6. Wanted: the run continues without that checkpoint, tries again after a pause, and fails
// only if its last state cannot be saved.
#include <gmock/gmock.h>
#include <sys/mount.h>

#include <fstream>

#include "ingot/formats/metrics_log.h"
#include "tests/run/training_fixture.h"

namespace ingot {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

class FailedSave : public TrainingTest {
 protected:
  RunConfig saving_config() const {
    RunConfig c = config(DType::f32);
    c.data.tokenizer = "byte";
    c.eval.every = 20;
    return c;
  }
  static size_t losses_in(const fs::path& metrics) {
    size_t count = 0;
    for (const MetricsRow& row : read_metrics(metrics)) count += row.number("loss").has_value();
    return count;
  }
};

TEST_F(FailedSave, TheRunGoesOnAndItsLastStateIsSaved) {
  const TrainOutcome undisturbed = train(saving_config(), folder / "undisturbed");
  const fs::path run = folder / "run", checkpoints = run / "checkpoints";
  on_line = [&](std::string_view line) {
    if (line.find("step 10/60") != line.npos) {
      fs::rename(checkpoints, run / "away");
      write_file(checkpoints, "a file where the folder was");
    }
    if (line.find("step 40/60") != line.npos) {
      fs::remove(checkpoints);
      fs::rename(run / "away", checkpoints);
    }
  };
  said.clear();
  const TrainOutcome outcome = train(saving_config(), run);
  EXPECT_EQ(outcome.status, TrainOutcome::Status::kCompleted);
  EXPECT_THAT(said,
              AllOf(HasSubstr("warning: step 15: the checkpoint could not be saved: "),
                    HasSubstr("the run goes on and tries again in 30s"), HasSubstr(checkpoints.string())));
  EXPECT_THAT(said, Not(HasSubstr("step 30: the checkpoint could not be saved"))) << "within the pause";
  expect_equal_files(outcome.checkpoint, undisturbed.checkpoint);
  for (const auto& entry : fs::directory_iterator(checkpoints))
    EXPECT_THAT(entry.path().filename().string(), testing::StartsWith("step-"))
        << "nothing half-written stays";
}

// Every file that a run writes meets the full disk: checkpoints, metrics, TensorBoard events and plots.
TEST_F(FailedSave, ADiskThatIsFullForAWhileLosesNothing) {
  const fs::path disk = folder / "disk";
  make_folders(disk);
  if (::mount("tmpfs", disk.c_str(), "tmpfs", 0, "size=16m") != 0)
    GTEST_SKIP() << "SKIPPED LOUDLY: a small tmpfs cannot be mounted here (needs root)";
  const TrainOutcome undisturbed = train(saving_config(), folder / "undisturbed");
  on_line = [&](std::string_view line) {
    if (line.find("step 10/60") != line.npos) {
      std::ofstream filler(disk / "filler", std::ios::binary);
      const std::string block(4096, 'x');
      while (filler.write(block.data(), 4096).flush()) {
      }
    }
    if (line.find("step 50/60") != line.npos) fs::remove(disk / "filler");
  };
  said.clear();
  {
    const TrainOutcome outcome = train(saving_config(), disk / "run");
    EXPECT_EQ(outcome.status, TrainOutcome::Status::kCompleted);
    EXPECT_THAT(said, AllOf(HasSubstr("metrics.jsonl"), HasSubstr("its lines wait in memory"),
                            HasSubstr("step 15: the checkpoint could not be saved: ")));
    EXPECT_EQ(losses_in(disk / "run/metrics.jsonl"), 60u) << "no line is lost";
    expect_equal_files(outcome.checkpoint, undisturbed.checkpoint);
  }
  EXPECT_EQ(::umount(disk.c_str()), 0);
}

}  // namespace
}  // namespace ingot
