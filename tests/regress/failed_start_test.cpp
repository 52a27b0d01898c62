// Seen: a start that failed left runs/NAME-DATE behind, and a second start in the same second said "is not
// empty", which hid the real error. A start that was killed in its first moments left a folder that could
// neither be started again ("not empty") nor resumed ("no config.toml"). Wanted: a start that made no step
// leaves nothing behind that prevents the next start.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "ingot/core/error.h"
#include "ingot/core/file.h"
#include "ingot/run/record/run_folder.h"
#include "ingot/run/record/stale_files.h"
#include "tests/regress/run_script.h"

namespace ingot {
namespace {

using ::testing::HasSubstr;
namespace fs = std::filesystem;

class FailedStart : public ScriptTest {
 protected:
  // Creates the files that a start leaves if it is killed before its first step.
  fs::path killed_start(const std::string& name) const {
    RunFolder run(folder_ / name, false);
    run.write_config(RunConfig());
    write_file(run.summary(), "{\"status\": \"running\"}\n");
    write_file(run.log(), "model 2 layers\n");
    write_file(run.metrics(), "{\"step\":0,\"bytes_activations\":5}\n");
    write_file(run.params(), "");
    make_folders(run.tensorboard());
    write_file(run.tensorboard() / "events.out.tfevents.1.host.2.3", "header");
    return run.path();
  }
};

TEST_F(FailedStart, LeavesNoFolderBehind) {
  EXPECT_EQ(ingot("train tiny-llama --data missing.txt"), 3) << said_;
  EXPECT_THAT(said_, HasSubstr("missing.txt"));
  EXPECT_TRUE(fs::is_empty(folder_));
  EXPECT_EQ(ingot("train tiny-llama --data missing.txt --out deep/run"), 3) << said_;
  EXPECT_TRUE(fs::is_empty(folder_));
}

TEST_F(FailedStart, KeepsAFolderThatWasThereBefore) {
  make_folders(folder_ / "mine");
  EXPECT_EQ(ingot("train tiny-llama --data missing.txt --out mine"), 3) << said_;
  EXPECT_TRUE(fs::exists(folder_ / "mine"));
  EXPECT_TRUE(fs::is_empty(folder_ / "mine"));
}

TEST_F(FailedStart, AFailedResumeRemovesNothing) {
  const fs::path run = killed_start("run");
  RunFolder(run, true).remove_failed_start();
  EXPECT_TRUE(fs::exists(run / "config.toml"));
}

TEST_F(FailedStart, LeftoversOfAKilledStartGiveWayToTheNext) {
  const fs::path run = killed_start("run");
  EXPECT_NO_THROW(RunFolder(run, false));
  EXPECT_FALSE(fs::exists(run / "run.json"));
  // This start was killed before it wrote config.toml.
  make_folders(folder_ / "early" / "samples");
  write_file(folder_ / "early" / ".lock", "pid 1");
  EXPECT_NO_THROW(RunFolder(folder_ / "early", false));
}

TEST_F(FailedStart, AKilledStartCannotBeResumedAndTheErrorSaysSo) {
  killed_start("run");
  write_file(folder_ / "text.txt", std::string(5000, 'a') + std::string(5000, 'b'));
  EXPECT_EQ(ingot("train --resume --out run --data text.txt"), 2) << said_;
  EXPECT_THAT(said_, HasSubstr("the run ended before its first step: start it again without --resume"));
}

// Seen: a run was killed after its first steps and before its first checkpoint. A fresh start recommended
// --resume, which then said that there was no checkpoint.
TEST_F(FailedStart, RecommendsToResumeOnlyIfThereIsACheckpoint) {
  const fs::path run = killed_start("run");
  write_file(run / "metrics.jsonl", "{\"step\":0}\n{\"step\":1,\"loss\":3}\n");
  const auto refuses = [&](const char* advice) {
    EXPECT_THAT([&] { RunFolder(run, false); }, testing::ThrowsMessage<Error>(HasSubstr(advice)));
  };
  refuses("holds no checkpoint to go on from: choose another --out");
  make_folders(run / "checkpoints" / "tmp.000000002.abcdef");
  refuses("holds no checkpoint to go on from: choose another --out");
  make_folders(run / "checkpoints" / "step-000000002");
  refuses("is not empty: go on with --resume, or choose another --out");
}

TEST_F(FailedStart, KeepsAFolderThatHoldsAnythingOfAUser) {
  const auto is_kept = [&](const std::string& file, const std::string& text) {
    const fs::path run = killed_start("run");
    make_folders((run / file).parent_path());
    write_file(run / file, text);
    EXPECT_FALSE(has_only_stale_files(run)) << file;
    EXPECT_THAT([&] { RunFolder(run, false); }, testing::ThrowsMessage<Error>(HasSubstr("is not empty")))
        << file;
    EXPECT_TRUE(fs::exists(run / file));
    fs::remove_all(run);
  };
  is_kept("thesis.txt", "mine");
  is_kept("config.toml", "preset = \"tiny-llama\"\n# mine\n");
  is_kept("metrics.jsonl", "{\"step\":0}\n{\"step\":1,\"loss\":3}\n");
  is_kept("checkpoints/step-000000001/model.safetensors", "weights");
  is_kept("samples/step-000000000.txt", "Once");
  is_kept("tb/notes.txt", "mine");
  // A folder without the lock file of an Ingot process is not ours to remove, whatever it contains.
  const fs::path run = killed_start("run");
  fs::remove(run / ".lock");
  EXPECT_FALSE(has_only_stale_files(run));
}

TEST_F(FailedStart, TwoStartsInOneSecondHaveFoldersOfTheirOwn) {
  const auto first = RunFolder::make_new(folder_ / "runs" / "demo-1");
  const auto second = RunFolder::make_new(folder_ / "runs" / "demo-1");
  EXPECT_EQ(first->path(), folder_ / "runs" / "demo-1");
  EXPECT_EQ(second->path(), folder_ / "runs" / "demo-1-2");
  second->remove_failed_start();
  EXPECT_FALSE(fs::exists(folder_ / "runs" / "demo-1-2"));
  EXPECT_TRUE(fs::exists(folder_ / "runs" / "demo-1"));
  first->remove_failed_start();
  EXPECT_TRUE(fs::is_empty(folder_));
}

}  // namespace
}  // namespace ingot
