// The program on several ranks, as a user starts it: mpirun in front, and nothing else.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <filesystem>
#include <string>
#include <vector>

#include "ingot/core/file.h"
#include "ingot/formats/metrics_log.h"

namespace ingot {
namespace {

using testing::AllOf;
using testing::HasSubstr;

struct Outcome {
  int exit_code = -1;
  std::string output;  // both streams
};

class LaunchTest : public testing::Test {
 protected:
  LaunchTest()
      : folder_(std::filesystem::temp_directory_path() / ("ingot_launch_" + std::to_string(getpid()))) {
    std::filesystem::remove_all(folder_);
    make_folders(folder_);
    std::string text;
    for (int i = 0; i < 2000; ++i) text += i % 7 < 3 ? "the cat sat on the mat. " : "a dog ran. ";
    write_file(folder_ / "text.txt", text);
  }
  ~LaunchTest() override { std::filesystem::remove_all(folder_); }

  void SetUp() override {
    if (std::string(INGOT_MPIRUN).empty()) GTEST_SKIP() << "built without MPI";
  }

  std::string path(const std::string& name) const { return (folder_ / name).string(); }

  // Runs a script; `run N ARGUMENTS` in it is `mpirun -n N ingot ARGUMENTS`.
  Outcome bash(const std::string& script) const {
    const std::string program = INGOT_PROGRAM, mpirun = INGOT_MPIRUN;
    write_file(folder_ / "script.sh",
               "export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMP_NUM_THREADS=1\n"
               "export OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_btl_vader_single_copy_mechanism=none\n"
               "export OMP_WAIT_POLICY=passive\n"
               "run() { n=$1; shift; exec " +
                   mpirun + " -n $n " + program + " \"$@\"; }\n" + script);
    Outcome outcome;
    std::FILE* pipe = popen(("bash " + path("script.sh") + " 2>&1").c_str(), "r");
    if (!pipe) return outcome;
    std::array<char, 4096> buffer;
    while (const size_t n = std::fread(buffer.data(), 1, buffer.size(), pipe))
      outcome.output.append(buffer.data(), n);
    const int status = pclose(pipe);
    outcome.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
    return outcome;
  }
  // Arguments of a short run into folder `out`.
  std::string train(const std::string& out, const std::string& more) const {
    return "train tiny-llama --data " + path("text.txt") + " --out " + path(out) +
           " --set data.tokenizer=byte --set train.batch_size=4 --set train.grad_accum=2"
           " --set model.context=32 --set sample.count=0 " +
           more;
  }
  std::vector<double> losses(const std::string& out) const {
    std::vector<double> all;
    for (const MetricsRow& row : read_metrics(folder_ / out / "metrics.jsonl"))
      if (const auto loss = row.number("loss")) all.push_back(*loss);
    return all;
  }

  std::filesystem::path folder_;
};

TEST_F(LaunchTest, EveryLayoutHasTheLossCurveOfOneRank) {
  const std::string steps = "--set train.steps=12 --set eval.every=6 ";
  const Outcome one = bash(std::string(INGOT_PROGRAM) + " " + train("one", steps));
  ASSERT_EQ(one.exit_code, 0) << one.output;
  const std::vector<double> want = losses("one");
  ASSERT_EQ(want.size(), 12u);
  for (const std::string layout : {"dp", "fsdp"}) {
    const Outcome two = bash("run 2 " + train(layout, steps + "--set parallel." + layout + "=2"));
    ASSERT_EQ(two.exit_code, 0) << two.output;
    EXPECT_THAT(two.output,
                AllOf(HasSubstr("ranks 2: " + layout + "=2"), HasSubstr("completed after 12 steps")));
    const std::vector<double> got = losses(layout);
    ASSERT_EQ(got.size(), want.size());
    for (size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(got[i], want[i], 1e-6 * want[i]) << layout << i;
    EXPECT_THAT(read_file(folder_ / layout / "ranks/1/train.log"), HasSubstr("completed after 12 steps"));
  }
}

TEST_F(LaunchTest, AWrongLayoutIsRefusedWithOneThatFits) {
  const Outcome more = bash("run 2 " + train("a", ""));
  EXPECT_EQ(more.exit_code, 2);
  EXPECT_THAT(more.output, HasSubstr("dp=1 needs 1 rank, but 2 were started"));
  EXPECT_THAT(more.output, HasSubstr("what fits 2 is dp=2"));
  const Outcome fewer = bash(std::string(INGOT_PROGRAM) + " " + train("b", "--set parallel.dp=2"));
  EXPECT_EQ(fewer.exit_code, 2);
  EXPECT_THAT(fewer.output, HasSubstr("dp=2 needs 2 ranks, but 1 was started; start it with mpirun -n 2"));
  const Outcome uneven = bash("run 3 " + train("c", "--set parallel.dp=3"));
  EXPECT_EQ(uneven.exit_code, 2);
  EXPECT_THAT(uneven.output, HasSubstr("cannot be dealt out to 3 ranks"));
  EXPECT_THAT(uneven.output, HasSubstr("the nearest that can are 2 or 4"));
  EXPECT_FALSE(std::filesystem::exists(folder_ / "c"));
}

// A script that starts a run on two ranks, waits for its first checkpoint, does something to it (its process
// is $job, its second rank $rank) and ends with the run's exit code.
std::string disturbed(const std::string& command, const std::string& out, const std::string& disturbance) {
  return "(run 2 " + command + ") & job=$!\nfor i in $(seq 600); do ls -d " + out +
         "/checkpoints/step-* >/dev/null 2>&1 && break; sleep 0.1; done\n"
         "rank=$(pgrep -P $job | tail -1)\n" +
         disturbance + "\nstart=$SECONDS\nwait $job\ncode=$?\necho took $((SECONDS - start)) s\nexit $code\n";
}

const char* const kLong = "--set train.steps=100000 --set checkpoint.every=5 --set parallel.dp=2 ";

TEST_F(LaunchTest, ASignalSavesOnAllRanksAndTheRunGoesOnOnOne) {
  const Outcome outcome =
      bash(disturbed(train("run", kLong), path("run"), "kill -TERM $rank"));  // one rank alone is told
  EXPECT_EQ(outcome.exit_code, 75) << outcome.output;
  EXPECT_THAT(outcome.output, HasSubstr("interrupted and saved"));
  const size_t steps = losses("run").size();
  const std::string more = " --set parallel.dp=1 --set train.stop_at=" + std::to_string(steps + 3);
  const Outcome resumed = bash(std::string(INGOT_PROGRAM) + " train --resume --out " + path("run") + more);
  EXPECT_EQ(resumed.exit_code, 0) << resumed.output;
  EXPECT_EQ(losses("run").size(), steps + 3);
}

TEST_F(LaunchTest, AKilledRankEndsTheRunAndLeavesItsCheckpoint) {
  const Outcome outcome = bash(disturbed(train("run", kLong), path("run"), "kill -KILL $rank"));
  EXPECT_NE(outcome.exit_code, 0);
  EXPECT_THAT(outcome.output, HasSubstr("signal 9"));
  const Outcome eval =
      bash(std::string(INGOT_PROGRAM) + " eval " + path("run") + " --data " + path("text.txt"));
  EXPECT_EQ(eval.exit_code, 0) << eval.output;
}

// Rank 1 may not write beyond its first 64 KB: the kernel kills it in the middle of the next checkpoint's
// weights.
TEST_F(LaunchTest, ARankKilledWhileItWritesLeavesTheLastCheckpoint) {
  for (const std::string layout : {"dp", "fsdp"}) {
    const std::string out = "run-" + layout;
    const Outcome outcome =
        bash(disturbed(train(out, kLong + ("--set parallel.dp=1 --set parallel." + layout + "=2")), path(out),
                       "prlimit --pid $rank --fsize=65536:65536"));
    EXPECT_NE(outcome.exit_code, 0);
    EXPECT_THAT(outcome.output, HasSubstr("signal 25"));  // SIGXFSZ
    bool has_unfinished = false;
    for (const auto& entry : std::filesystem::directory_iterator(folder_ / out / "checkpoints"))
      has_unfinished |= entry.path().filename().string().starts_with("tmp.");
    EXPECT_TRUE(has_unfinished);
    const Outcome eval =
        bash(std::string(INGOT_PROGRAM) + " eval " + path(out) + " --data " + path("text.txt"));
    EXPECT_EQ(eval.exit_code, 0) << eval.output;
    const std::string more = " --set parallel.dp=1 --set parallel.fsdp=1 --set train.stop_at=";
    const Outcome resumed = bash(std::string(INGOT_PROGRAM) + " train --resume --out " + path(out) + more +
                                 std::to_string(losses(out).size() + 3));
    EXPECT_EQ(resumed.exit_code, 0) << resumed.output;
  }
}

TEST_F(LaunchTest, AStoppedRankIsMissedByTheOthersWhoSayWhere) {
  const Outcome outcome = bash(disturbed(train("run", std::string(kLong) + "--set parallel.timeout=2s"),
                                         path("run"), "kill -STOP $rank"));
  EXPECT_NE(outcome.exit_code, 0);
  EXPECT_THAT(outcome.output, AllOf(HasSubstr("an operation is late"), HasSubstr("rank 1: does not answer")));
}

// Every rank finds the same: the text is too short. The first one's message ends the run.
TEST_F(LaunchTest, AnErrorEndsAllRanksWithItsExitCode) {
  write_file(folder_ / "text.txt", "short");
  const Outcome outcome = bash("run 2 " + train("run", "--set parallel.dp=2"));
  EXPECT_EQ(outcome.exit_code, 3) << outcome.output;
  EXPECT_THAT(outcome.output, HasSubstr("rank 0 of 2: "));
}

}  // namespace
}  // namespace ingot
