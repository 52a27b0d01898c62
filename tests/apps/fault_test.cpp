// A run in which one rank is killed, exits, hangs or calls the wrong collective ends soon, names the rank
// and the collective, and can be resumed from its last checkpoint.
#include "tests/apps/launch_fixture.h"

namespace ingot {
namespace {

using testing::AllOf;
using testing::ContainsRegex;
using testing::HasSubstr;

// Upper bound for the time to the end of a disturbed run: far above the time that these tests take, far
// below the time that a run would take without noticing the fault.
constexpr int kMax_s = 30;

class FaultTest : public LaunchTest {
 protected:
  std::string long_run(const std::string& layout) const {
    return train("run", "--set train.steps=100000 --set checkpoint.every=5 --set parallel." + layout + "=2 ");
  }
  // The script of a run in folder "run", by the program whose rank 1 misbehaves after the first checkpoint
  // (tests/apps/mpi/fault_ranks.cpp).
  std::string faulty(const std::string& fault) const {
    return "start=$SECONDS\n(program=" INGOT_FAULT_PROGRAM "; run 2 " + fault + " " + path("run") + " " +
           path("text.txt") +
           " data.tokenizer=byte train.batch_size=4 train.grad_accum=2 model.context=32 sample.count=0"
           " train.steps=100000 checkpoint.every=5 parallel.dp=2 parallel.verify=true)\n"
           "code=$?\necho took $((SECONDS - start)) s\nexit $code\n";
  }
  void expect_ended(const Outcome& outcome) const {
    EXPECT_NE(outcome.exit_code, 0) << outcome.output;
    const size_t place = outcome.output.find("took ");
    ASSERT_NE(place, std::string::npos) << outcome.output;
    EXPECT_LT(std::stoi(outcome.output.substr(place + 5)), kMax_s) << outcome.output;
  }
  // Expects that a run on one rank can resume from the newest checkpoint.
  void expect_goes_on() {
    const Outcome resumed = bash(
        "last=$(ls " + path("run/checkpoints") + " | grep ^step- | sort | tail -1); last=${last#step-}\n" +
        "ingot_steps=$((10#$last + 3))\n" + INGOT_PROGRAM + " train --resume --out " + path("run") +
        " --set parallel.dp=1 --set parallel.fsdp=1 --set parallel.pp=1 --set train.stop_at=$ingot_steps");
    EXPECT_EQ(resumed.exit_code, 0) << resumed.output;
    EXPECT_THAT(resumed.output, HasSubstr("resumed "));
  }
};

// The ranks of a machine take its devices in turn, of which there may be none.
TEST_F(FaultTest, RanksWithoutADeviceSayWhy) {
  const Outcome outcome =
      bash("export CUDA_VISIBLE_DEVICES=\nprogram=" INGOT_FAULT_PROGRAM "; run 2 exit " + path("run") + " " +
           path("text.txt") + " data.tokenizer=byte train.device=cuda parallel.dp=2");
  EXPECT_NE(outcome.exit_code, 0);
  EXPECT_THAT(outcome.output, HasSubstr("of 2: train.device = \"cuda\": "));
}

TEST_F(FaultTest, AKilledRankIsNamed) {
  for (const std::string layout : {"dp", "pp"}) {
    const Outcome outcome = bash(disturbed(long_run(layout), path("run"), "kill -KILL $rank"));
    expect_ended(outcome);
    EXPECT_THAT(outcome.output,
                AllOf(ContainsRegex("process rank 1 .*signal 9"),
                      ContainsRegex("rank 0 of 2: told to end, and waits for other ranks: "
                                    ".*in (all_reduce|all_gather_into|broadcast|send|receive|barrier) '")));
    expect_goes_on();
    std::filesystem::remove_all(folder_ / "run");
  }
}

// prlimit keeps rank 1 from writing beyond the first 64 KB of a file, and later allows it again.
TEST_F(FaultTest, ARankThatMayNotWriteIsAFailedSaveAndTheRunGoesOn) {
  for (const std::string layout : {"dp", "fsdp"}) {
    const Outcome outcome = bash(disturbed(
        long_run(layout), path("run"),
        "prlimit --pid $rank --fsize=65536:\nfor i in $(seq 300); do grep -q 'could not be saved' " +
            path("run") +
            "/train.log && break; sleep 0.1; done\nprlimit --pid $rank --fsize=unlimited:\nkill -USR1 $job"));
    expect_ended(outcome);
    EXPECT_THAT(outcome.output, AllOf(HasSubstr("could not be saved"), HasSubstr("interrupted and saved")));
    expect_goes_on();
    std::filesystem::remove_all(folder_ / "run");
  }
}

TEST_F(FaultTest, AStoppedRankIsNamed) {
  for (const std::string layout : {"dp", "pp"}) {
    const Outcome outcome =
        bash(disturbed(long_run(layout) + "--set parallel.timeout=2s", path("run"), "kill -STOP $rank"));
    expect_ended(outcome);
    EXPECT_THAT(
        outcome.output,
        AllOf(HasSubstr("an operation is late (more than 2 s)"),
              ContainsRegex("rank 0: .*in (all_reduce|all_gather_into|broadcast|send|receive|barrier) '"),
              HasSubstr("rank 1: does not answer")));
    expect_goes_on();
    std::filesystem::remove_all(folder_ / "run");
  }
}

// Under default keys, a rank that hangs in a step is named after a few seconds; formerly it took ten
// minutes.
TEST_F(FaultTest, AStoppedRankIsNamedUnderDefaultKeys) {
  const std::string run = path("run");
  const Outcome outcome =
      bash("(run 2 " + train("run", "--set train.steps=100000 --set eval.every=0 --set parallel.dp=2 ") +
           ") & job=$!\nfor i in $(seq 600); do [ $(cat " + run +
           "/metrics.jsonl 2>/dev/null | wc -l) -gt 20 ] && break; sleep 0.1; done\n"
           "rank=$(process_of $job 1)\nkill -STOP $rank\nstart=$SECONDS\nwait $job\ncode=$?\n"
           "echo took $((SECONDS - start)) s\nexit $code\n");
  expect_ended(outcome);
  EXPECT_THAT(outcome.output,
              AllOf(HasSubstr("an operation is late (more than 5 s, by parallel.timeout = \"auto\")"),
                    ContainsRegex("rank 0: .*in (all_reduce|all_gather_into|broadcast|barrier) '"),
                    HasSubstr("rank 1: does not answer")));
}

// Here rank 1 runs a program that misbehaves after the first checkpoint (tests/apps/mpi/fault_ranks.cpp).
TEST_F(FaultTest, ARankThatLeavesIsNamed) {
  const Outcome outcome = bash(faulty("exit"));
  expect_ended(outcome);
  EXPECT_THAT(outcome.output,
              AllOf(ContainsRegex("rank 1 "), ContainsRegex("rank 0 of 2: told to end, and waits")));
  expect_goes_on();
}

TEST_F(FaultTest, ARankThatCallsAnotherCollectiveIsNamed) {
  const Outcome outcome = bash(faulty("mismatch"));
  expect_ended(outcome);
  EXPECT_THAT(outcome.output,
              ContainsRegex("rank 0 of the group calls all_reduce 'sum' of [0-9]+ bytes, rank 1 calls "
                            "all_reduce 'max' of [0-9]+ bytes"));
  expect_goes_on();
}

}  // namespace
}  // namespace ingot
