// Saving on several ranks: a failure on one rank fails the save on all ranks, and the run continues.
#include "ingot/checkpoint/checkpoint_store.h"
#include "tests/apps/launch_fixture.h"

namespace ingot {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;

class SaveRanksTest : public LaunchTest {};

// All ranks continue to train while the folder of checkpoints is missing, and all save when they are asked to
// end.
TEST_F(SaveRanksTest, AFailedSaveDoesNotEndTheRun) {
  const std::string run_folder = path("run");
  const std::string command =
      train("run", "--set train.steps=100000 --set checkpoint.every=5 --set parallel.fsdp=2 ");
  const Outcome outcome = bash(disturbed(
      command, run_folder,
      "cd " + run_folder + "\nmv checkpoints away; touch checkpoints\n" +
          "for i in $(seq 300); do grep -q 'could not be saved' train.log && break; sleep 0.1; done\n" +
          "sleep 0.3; rm checkpoints; mv away checkpoints; kill -TERM $rank"));
  EXPECT_EQ(outcome.exit_code, 75) << outcome.output;
  EXPECT_THAT(outcome.output,
              // The rank is 1 if the folder goes while a checkpoint is being written.
              AllOf(HasSubstr("the checkpoint could not be saved: rank "),
                    HasSubstr("the run goes on and tries again in 30s"), HasSubstr("interrupted and saved")));
  const auto newest = newest_healthy_checkpoint(folder_ / "run/checkpoints", {});
  ASSERT_TRUE(newest);
  EXPECT_EQ(newest->step, static_cast<int64_t>(losses("run").size()));
  EXPECT_THAT(read_file(folder_ / "run/ranks/1/train.log"), HasSubstr("could not be saved"));
}

// Each rank checks the values that it writes; a rank that finds a NaN keeps all ranks from committing.
TEST_F(SaveRanksTest, AStateThatIsNotFiniteIsNeverCommitted) {
  const Outcome outcome = bash("run 2 " + train("run",
                                                "--set train.steps=50 --set checkpoint.every=1 "
                                                "--set optimizer.lr=1e37 --set optimizer.weight_decay=100 "
                                                "--set schedule.warmup_steps=0 --set parallel.fsdp=2"));
  EXPECT_EQ(outcome.exit_code, 5) << outcome.output;
  const fs::path checkpoints = folder_ / "run/checkpoints";
  const std::vector<Checkpoint> all = list_checkpoints(checkpoints);
  if (all.empty()) return;
  EXPECT_EQ(newest_healthy_checkpoint(checkpoints, {})->step, all.front().step);
}

// Ranks that write concurrently with training commit the same files as ranks that wait.
TEST_F(SaveRanksTest, CheckpointsBesideTrainingEqualThoseThatAreWaitedFor) {
  for (const std::string layout : {"--set parallel.fsdp=2", "--set parallel.dp=2"}) {
    const std::string steps =
        "--set train.steps=12 --set checkpoint.every=3 --set checkpoint.keep=9 " + layout;
    const Outcome outcome = bash("(run 2 " + train("beside", steps) + ") && (run 2 " +
                                 train("waiting", steps + " --set checkpoint.async=false") + ") && diff -r " +
                                 path("beside/checkpoints") + " " + path("waiting/checkpoints") + " && ls " +
                                 path("beside/checkpoints") + " && rm -r beside waiting");
    EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
    for (const char* step : {"step-000000003", "step-000000006", "step-000000009", "step-000000012"})
      EXPECT_THAT(outcome.output, HasSubstr(step));
  }
}

}  // namespace
}  // namespace ingot
