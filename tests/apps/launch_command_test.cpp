// Tests of `ingot launch`: real processes are killed, stopped and asked to end.
#include <algorithm>
#include <map>

#include "ingot/launch/incident.h"
#include "tests/apps/launch_fixture.h"

namespace ingot {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

class LaunchCommandTest : public LaunchTest {
 protected:
  // A script that starts `ingot launch` in the background, waits until the run has made a step after step
  // `after`, and executes `disturbance` with the functions
  //   ranks      prints the processes of the ranks, in their order
  //   wait_for N waits until metrics.jsonl has a step above N
  std::string supervised(const std::string& options, const std::string& command, const std::string& out,
                         const std::string& disturbance) const {
    // AddressSanitizer would turn a segmentation fault into an ordinary error.
    return "export ASAN_OPTIONS=$ASAN_OPTIONS:handle_segv=0\n$program launch " + options + " -- " + command +
           " & job=$!\n" + "ranks() { for p in $(pgrep -f -- '--out " + path(out) +
           "'); do [ $(cat /proc/$p/comm) = ingot ] && [ $p != $job ] && echo $(rank_of $p) $p;\n"
           "  done | sort -n | cut -d ' ' -f 2; }\n"
           "wait_for() { for i in $(seq 600); do\n"
           "  step=$(tail -n 1 " +
           path(out) +
           "/metrics.jsonl 2>/dev/null | sed -n 's/.*\"step\":\\([0-9]*\\).*/\\1/p')\n"
           "  [ ${step:-0} -gt $1 ] && return; sleep 0.05; done; echo no step after $1; }\n"
           // A checkpoint may take longer than a step, so a process is stopped within a step.
           "stop_in_step() { for i in $(seq 200); do kill -STOP $1; sleep 0.01\n"
           "  grep -q '\"phase\":\"step\"' " +
           path(out) + "/heartbeat.json && return; kill -CONT $1; sleep 0.01; done; }\n" + disturbance +
           "\nwait $job\ncode=$?\nranks | wc -l | sed 's/^/left: /'\nexit $code\n";
  }
  // The last loss of every step.
  std::map<int64_t, double> loss_of_step(const std::string& out) const {
    std::map<int64_t, double> losses;
    for (const MetricsRow& row : read_metrics(folder_ / out / "metrics.jsonl"))
      if (const auto loss = row.number("loss")) losses[static_cast<int64_t>(*row.number("step"))] = *loss;
    return losses;
  }
};

constexpr const char* kSteps = "--set train.steps=800 --set checkpoint.every=20 --set eval.every=0 ";

TEST_F(LaunchCommandTest, AProcessThatIsKilledAndOneThatIsStoppedGoOnBitForBit) {
  const Outcome calm = bash("$program " + train("calm", kSteps));
  ASSERT_EQ(calm.exit_code, 0) << calm.output;
  const Outcome outcome = bash(supervised("", train("run", kSteps), "run",
                                          "wait_for 30; kill -KILL $(ranks)\n"
                                          "wait_for 150; stop_in_step $(ranks)"));
  ASSERT_EQ(outcome.exit_code, 0) << outcome.output;
  EXPECT_THAT(outcome.output, AllOf(HasSubstr("left: 0"), HasSubstr("going on from step")));
  EXPECT_EQ(loss_of_step("run"), loss_of_step("calm"));
  const auto incidents = read_incidents(folder_ / "run");
  ASSERT_EQ(incidents.size(), 2u) << outcome.output;
  EXPECT_EQ(incidents[0].kind, IncidentKind::kKilled);
  EXPECT_EQ(incidents[0].rank, 0);
  EXPECT_EQ(incidents[1].kind, IncidentKind::kHang);
  EXPECT_THAT(incidents[1].reason, HasSubstr("stopped"));
  for (const Incident& incident : incidents) {
    EXPECT_TRUE(incident.steps_lost.has_value());
    EXPECT_LT(incident.steps_lost.value_or(100), 60);
    EXPECT_GT(incident.recovery_s.value_or(0), 0);
  }
  EXPECT_THAT(bash("$program status " + path("run")).output,
              AllOf(HasSubstr("completed"), HasSubstr("2 incidents (1 hang, 1 killed)")));
}

TEST_F(LaunchCommandTest, RanksThatDieAreNamedAndStartedAgain) {
  const std::string command = train("run", std::string(kSteps) + "--set parallel.dp=2");
  const Outcome outcome = bash(supervised("-n 2", command, "run",
                                          "wait_for 30; kill -KILL $(ranks | tail -n 1)\n"
                                          "wait_for 150; kill -SEGV $(ranks | head -n 1)"));
  ASSERT_EQ(outcome.exit_code, 0) << outcome.output;
  const auto incidents = read_incidents(folder_ / "run");
  ASSERT_EQ(incidents.size(), 2u) << outcome.output;
  EXPECT_EQ(incidents[0].kind, IncidentKind::kKilled);
  EXPECT_EQ(incidents[0].reason, "signal 9 (SIGKILL)");
  EXPECT_EQ(incidents[1].kind, IncidentKind::kCrashed);
  for (const Incident& incident : incidents) EXPECT_TRUE(incident.rank.has_value()) << outcome.output;
  EXPECT_EQ(loss_of_step("run").size(), 800u);
}

TEST_F(LaunchCommandTest, AStoppedRankIsNamedAndStartedAgain) {
  const std::string command = train("run", std::string(kSteps) + "--set parallel.dp=2");
  const Outcome outcome =
      bash(supervised("-n 2", command, "run", "wait_for 30; stop_in_step $(ranks | tail -n 1)"));
  ASSERT_EQ(outcome.exit_code, 0) << outcome.output;
  EXPECT_THAT(outcome.output, HasSubstr("left: 0"));
  const auto incidents = read_incidents(folder_ / "run");
  ASSERT_EQ(incidents.size(), 1u) << outcome.output;
  EXPECT_EQ(incidents[0].kind, IncidentKind::kHang);
  EXPECT_TRUE(incidents[0].rank.has_value());
  EXPECT_EQ(incidents[0].ranks, 2);
}

// The launcher dies: its ranks are found and killed before the next start, which would find the run's folder
// locked otherwise.
TEST_F(LaunchCommandTest, ALauncherThatIsKilledLeavesNoRanks) {
  const std::string command = train("run", std::string(kSteps) + "--set parallel.dp=2");
  const Outcome outcome =
      bash(supervised("-n 2", command, "run", "wait_for 30; kill -KILL $(pgrep -P $job)"));
  ASSERT_EQ(outcome.exit_code, 0) << outcome.output;
  const auto incidents = read_incidents(folder_ / "run");
  ASSERT_EQ(incidents.size(), 1u) << outcome.output;
  EXPECT_EQ(incidents[0].reason, "the launcher: signal 9 (SIGKILL)");
}

TEST_F(LaunchCommandTest, ASignalReachesAllRanksAndTheSameCommandGoesOn) {
  const std::string command = train(
      "run", "--set train.steps=4000 --set checkpoint.every=1000 --set eval.every=0 --set parallel.dp=2");
  const Outcome outcome = bash(supervised("-n 2", command, "run", "wait_for 30; kill -TERM $job"));
  ASSERT_EQ(outcome.exit_code, 75) << outcome.output;
  EXPECT_THAT(outcome.output, AllOf(HasSubstr("interrupted and saved"), HasSubstr("left: 0")));
  const size_t steps = loss_of_step("run").size();
  EXPECT_LT(steps, 1000u);
  EXPECT_TRUE(read_incidents(folder_ / "run").empty());
  const Outcome again =
      bash("$program launch -n 2 -- " + command + " --set train.stop_at=" + std::to_string(steps + 5));
  ASSERT_EQ(again.exit_code, 0) << again.output;
  EXPECT_EQ(loss_of_step("run").size(), steps + 5);
}

// Seen: mpirun, whose ranks had ended while they read the text, died of the next request to end; exit code
// 138.
TEST_F(LaunchCommandTest, ALauncherMayDieOfTheRequestAfterItsRanks) {
  write_file(folder_ / "launcher",
             "mpirun \"$@\" & ranks=$!\ntrap 'kill -USR1 $ranks' USR1\n"
             "while kill -0 $ranks; do wait $ranks; done\ntrap - USR1\nkill -USR1 $$\n");
  const std::string command =
      train("run", "--set parallel.dp=2 --set data.tokenizer=bpe --set data.train=" + path("long"));
  const Outcome outcome = bash(
      "seq 6000000 >" + path("long") + "\nexport OMP_NUM_THREADS=1\n$program launch -n 2 --mpirun 'bash " +
      path("launcher") + "' -- " + command + " & job=$!\nwhile [ ! -e " + path("run/heartbeat.json") +
      " ]; do sleep 0.02; done\nsleep 0.3; kill -TERM $job; wait $job");
  EXPECT_EQ(outcome.exit_code, 75) << outcome.output;
  EXPECT_THAT(outcome.output, HasSubstr("interrupted while the text was read"));
}

TEST_F(LaunchCommandTest, ASecondSignalEndsItAtOnce) {
  const std::string command = train("run", "--set train.steps=100000 --set eval.every=0");
  const Outcome outcome = bash(supervised(
      "", command, "run", "wait_for 10; kill -STOP $(ranks); kill -TERM $job; sleep 0.5; kill -TERM $job"));
  EXPECT_NE(outcome.exit_code, 0);
  EXPECT_NE(outcome.exit_code, 75);
  EXPECT_THAT(outcome.output, HasSubstr("left: 0"));
}

// A supervisor that is killed does not leave a run behind: its ranks save and end.
TEST_F(LaunchCommandTest, RanksOfADeadSupervisorSaveAndEnd) {
  const std::string command = train(
      "run", "--set train.steps=100000 --set checkpoint.every=50000 --set eval.every=0 --set parallel.dp=2");
  const Outcome outcome = bash(supervised("-n 2", command, "run",
                                          "wait_for 30; kill -KILL $job; for i in $(seq 100); do\n"
                                          "[ -z \"$(ranks)\" ] && break; sleep 0.1; done"));
  EXPECT_EQ(outcome.exit_code, 137);
  EXPECT_THAT(outcome.output, HasSubstr("left: 0"));
  EXPECT_THAT(bash("$program status " + path("run")).output, HasSubstr("interrupted")) << outcome.output;
}

TEST_F(LaunchCommandTest, TheSameFailureTwiceEndsTheRunWithItsCode) {
  const Outcome outcome =
      bash("$program launch -- " +
           train("run", std::string(kSteps) + "--set optimizer.lr=1e30 --set schedule.warmup_steps=0"));
  EXPECT_EQ(outcome.exit_code, 5) << outcome.output;
  const auto incidents = read_incidents(folder_ / "run");
  ASSERT_EQ(incidents.size(), 2u) << outcome.output;
  EXPECT_THAT(incidents[1].end, HasSubstr("failed twice for the same reason"));
}

// A host that cannot be reached is left out, with fewer replicas, and every sample is still used once.
TEST_F(LaunchCommandTest, ALostHostIsLeftOut) {
  const std::string command = train("run", "--set train.steps=20 --set eval.every=0 --set parallel.dp=2");
  const Outcome outcome =
      bash("export OMPI_MCA_plm_rsh_agent=false\n$program launch --hosts localhost:1,lost.invalid:1 -- " +
           command);
  ASSERT_EQ(outcome.exit_code, 0) << outcome.output;
  EXPECT_THAT(outcome.output,
              AllOf(HasSubstr("the host lost.invalid does not answer"), HasSubstr("going on with dp=1")));
  EXPECT_EQ(loss_of_step("run").size(), 20u);
}

TEST_F(LaunchCommandTest, AWrongCommandIsRefusedBeforeAnythingStarts) {
  const std::map<std::string, std::string> refused = {
      {"", "write the command behind two dashes"},
      {"-- eval run", "write the command behind two dashes"},
      {"-- train tiny-lama --data " + path("text.txt"), "tiny-llama"},
      {"-n 3 -- " + train("run", "--set parallel.dp=2"), "needs 2 ranks"},
      {"--hosts a:x -- " + train("run", ""), "--hosts"},
      {"-- train tiny-llama --data absent.txt --out " + path("run"), "absent.txt"},
  };
  for (const auto& [words, message] : refused) {
    const Outcome outcome = bash("$program launch " + words);
    EXPECT_TRUE(outcome.exit_code == 2 || outcome.exit_code == 3) << outcome.output;
    EXPECT_THAT(outcome.output, HasSubstr(message)) << words;
    EXPECT_FALSE(std::filesystem::exists(folder_ / "run")) << words;
  }
}

TEST_F(LaunchCommandTest, ACompleteRunIsNotTrainedAgain) {
  const std::string command = train("run", "--set train.steps=3 --set eval.every=0");
  ASSERT_EQ(bash("$program launch -- " + command).exit_code, 0);
  const Outcome again = bash("$program launch -- " + command);
  EXPECT_EQ(again.exit_code, 2);
  EXPECT_THAT(again.output, HasSubstr("is complete"));
}

}  // namespace
}  // namespace ingot
