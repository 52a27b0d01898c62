// Tests of what signals do to a run, and of what happens when the reader of its output goes away.
#include <fcntl.h>

#include <csignal>
#include <cstdio>
#include <tuple>

#include "tests/apps/launch_fixture.h"
#include "tests/apps/pty_run.h"

namespace ingot {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

class SignalsTest : public LaunchTest {
 protected:
  void SetUp() override {}  // most of these tests need no MPI
  void require_mpi() { LaunchTest::SetUp(); }

  // Returns a script in which `start ARGUMENTS` is the shell command `command`, `ready` waits until the
  // run in folder "run" is ready, and `told SIGNAL FOLDER ROUND` signals the background job $p at a random
  // moment after its run has become ready for the ROUND-th time. With several ranks ($ranks is set) the
  // last rank gets the signal, except SIGUSR1, which mpirun gets and passes on.
  std::string script(const std::string& command, const std::string& lines) const {
    return "cd " + folder_.string() + "\nstart() { " + command + "; }\n" + R"sh(
ready() { until grep -qs '^ready after' run/train.log; do sleep 0.02; done; }
told() {
  until [ "$(grep -cs "^ready after" $2/train.log)" -ge $3 ] 2>/dev/null; do
    kill -0 $p 2>/dev/null || return
    sleep 0.01
  done
  sleep 0.$(printf %03d $((RANDOM % 150)))
  to=$p; [ -n "$ranks" ] && [ $1 != USR1 ] && to=$(process_of $p 1)
  kill -$1 $to 2>/dev/null
}
)sh" + lines;
  }
  std::string one_run(const std::string& keys, const std::string& lines) const {
    return script("exec $program " + train("run", keys), lines);
  }
  // Returns a script that makes an undisturbed run in folder "want" and then `rounds` runs in "got". Each
  // of these is asked to end by every signal in turn and is resumed until it has completed. The script
  // prints how often it interrupted a run; its exit code is 0 if all weights and optimizer states are
  // equal byte for byte.
  std::string rounds_of(int rounds, const std::string& compute, bool has_ranks) const {
    const std::string keys = "--set train.steps=150 --set precision.compute=" + compute +
                             (has_ranks ? " --set parallel.dp=2" : "");
    const std::string names = "first='" + train("got", keys) + "'\nagain='train --resume --out got'\nwant='" +
                              train("want", keys) + "'\nranks=" + (has_ranks ? "2" : "") +
                              "\nrounds=" + std::to_string(rounds) + "\n";
    return names + script(has_ranks ? "run 2 \"$@\"" : "exec $program \"$@\"", R"sh(
rm -rf want; (start $want) >/dev/null || exit 1
interrupted=0
for round in $(seq $rounds); do
  rm -rf got; begin=$first; n=0
  for signal in INT TERM HUP USR1 none; do
    n=$((n + 1))
    start $begin >out.$n 2>&1 & p=$!
    [ $signal = none ] || told $signal got $n
    wait $p; code=$?
    [ $code = 0 ] && break
    [ $code = 75 ] || { echo "round $round: $signal ended with $code"; cat out.$n; exit 1; }
    grep -q '"status": "interrupted"' got/run.json || { cat got/run.json; exit 1; }
    grep -q 'SIG.*a second signal ends it at once' out.$n || [ -n "$ranks" ] || { cat out.$n; exit 1; }
    interrupted=$((interrupted + 1)); begin=$again
  done
  [ $code = 0 ] || exit 1
  for file in model.safetensors optimizer.safetensors; do
    cmp {want,got}/checkpoints/step-000000150/$file || exit 1
  done
done
echo interrupted $interrupted times
)sh");
  }
  static int interruptions(const Outcome& outcome) {
    const size_t place = outcome.output.find("interrupted ");
    return place == std::string::npos ? 0 : std::stoi(outcome.output.substr(place + 12));
  }
};

TEST_F(SignalsTest, EveryStopSignalSavesAndTheResumedRunHasTheSameBytes) {
  const Outcome outcome = bash(rounds_of(1, "f32", false));
  EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
  EXPECT_GT(interruptions(outcome), 0) << outcome.output;
}

class LongSignalsTest : public SignalsTest {};
class SlowSignalsTest : public SignalsTest {};

TEST_F(LongSignalsTest, RanksAndBf16SaveAndResumeWithTheSameBytesToo) {
  const Outcome bf16 = bash(rounds_of(1, "bf16", false));
  EXPECT_EQ(bf16.exit_code, 0) << bf16.output;
  require_mpi();
  if (IsSkipped()) return;
  for (const char* compute : {"f32", "bf16"}) {
    const Outcome outcome = bash(rounds_of(1, compute, true));
    EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
    EXPECT_GT(interruptions(outcome), 0) << outcome.output;
  }
}

TEST_F(SlowSignalsTest, ASignalAtAnyOfTwoHundredMomentsLosesNothing) {
  require_mpi();
  if (IsSkipped()) return;
  int times = 0;
  // On a fast machine some runs complete before their signal arrives; another turn makes up for them.
  for (int turn = 0; turn < 3 && times < 200; ++turn)
    for (const char* compute : {"f32", "bf16"})
      for (const bool has_ranks : {false, true}) {
        const Outcome outcome = bash(rounds_of(14, compute, has_ranks));
        ASSERT_EQ(outcome.exit_code, 0) << compute << outcome.output;
        times += interruptions(outcome);
        std::printf("%s %d: %s", compute, has_ranks ? 2 : 1, outcome.output.c_str());
      }
  EXPECT_GE(times, 200);
}

// Signal handlers on compute threads once corrupted f32 runs. Now every thread blocks the signals except
// the one that waits for them.
TEST_F(SignalsTest, OneThreadReceivesAllSignals) {
  const Outcome outcome = bash(one_run("--set train.steps=100000", R"sh(
start >/dev/null 2>&1 & p=$!
ready
for task in /proc/$p/task/*; do
  blocked=$((0x$(awk '/^SigBlk/ {print $2}' $task/status)))
  bits=$((0x4203))  # HUP, INT, USR1 and TERM
  [ $((blocked & bits)) = $bits ] && echo all blocked || echo open
done
kill -TERM $p; wait $p
)sh"));
  EXPECT_EQ(outcome.exit_code, 75) << outcome.output;
  size_t open = 0;
  for (size_t at = 0; (at = outcome.output.find("open\n", at)) != std::string::npos; ++at) ++open;
  EXPECT_EQ(open, 1u) << outcome.output;
  EXPECT_THAT(outcome.output, HasSubstr("all blocked"));
}

// A step of this run would take minutes.
TEST_F(SignalsTest, ALongStepIsAbandonedBetweenTwoMicroBatches) {
  const Outcome outcome = bash(one_run("--set train.steps=10 --set train.grad_accum=200000", R"sh(
start 2>&1 & p=$!
ready
kill -TERM $p
timeout 60 tail --pid=$p -f /dev/null || kill -KILL $p
wait $p
)sh"));
  EXPECT_EQ(outcome.exit_code, 75) << outcome.output;
  EXPECT_THAT(outcome.output, AllOf(HasSubstr("SIGTERM: the run ends and saves as soon as it can"),
                                    HasSubstr("interrupted after 0 steps")));
  EXPECT_TRUE(std::filesystem::exists(folder_ / "run/checkpoints/step-000000000"));
}

// Both signals are pending when the stopped program continues.
TEST_F(SignalsTest, ASecondSignalEndsAtOnce) {
  const Outcome outcome = bash(one_run("--set train.steps=100000", R"sh(
start 2>&1 & p=$!
ready
kill -STOP $p; kill -TERM $p; kill -INT $p; kill -CONT $p
wait $p
)sh"));
  EXPECT_THAT(outcome.exit_code, testing::AnyOf(128 + SIGTERM, 128 + SIGINT)) << outcome.output;
}

// The script ignores SIGHUP as nohup does.
TEST_F(SignalsTest, SighupStaysIgnoredWhereItWasIgnored) {
  const Outcome outcome = bash(one_run("--set train.steps=100000", R"sh(
trap '' HUP
start 2>&1 & p=$!
ready
kill -HUP $p; sleep 0.2; kill -TERM $p
wait $p
)sh"));
  EXPECT_EQ(outcome.exit_code, 75) << outcome.output;
  EXPECT_THAT(outcome.output, AllOf(HasSubstr("SIGTERM: "), Not(HasSubstr("SIGHUP: "))));
}

TEST_F(SignalsTest, AClosedStandardOutputDoesNotEndTheRun) {
  const Outcome outcome = bash("$program " + train("run", "--set train.steps=30 --set train.log_every=1") +
                               " | head -1\nexit ${PIPESTATUS[0]}\n");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
  EXPECT_THAT(read_file(folder_ / "run/train.log"), AllOf(HasSubstr("standard output has gone (Broken pipe)"),
                                                          HasSubstr("completed after 30 steps")));
}

// The kernel sends SIGHUP when a terminal goes away. If the program ignores it, writes to the terminal fail.
TEST_F(SignalsTest, AVanishedTerminalSavesOrDoesNotEndTheRun) {
  const std::string command = std::string(INGOT_PROGRAM) + " " + train("run", "--set train.steps=100000");
  PtyRun run("exec " + command);
  if (!run.is_started()) GTEST_SKIP() << "no pseudo-terminals here";
  ASSERT_TRUE(run.read_until("loss ")) << run.output();
  run.vanish();
  EXPECT_EQ(run.wait(), 75) << run.output();
  EXPECT_THAT(read_file(folder_ / "run/run.json"), HasSubstr("\"status\": \"interrupted\""));
  std::filesystem::remove_all(folder_ / "run");
  PtyRun ignoring("trap '' HUP; exec " + std::string(INGOT_PROGRAM) + " " +
                  train("run", "--set train.steps=200 --set train.log_every=1"));
  ASSERT_TRUE(ignoring.read_until("loss ")) << ignoring.output();
  ignoring.vanish();
  EXPECT_EQ(ignoring.wait(), 0);
  EXPECT_THAT(read_file(folder_ / "run/train.log"),
              AllOf(HasSubstr("standard output has gone (Input/output error)"),
                    HasSubstr("completed after 200 steps")));
}

// Once mpirun is asked to end, it stops reading the output of the ranks and kills them a second after its
// SIGTERM. Rank 0 once blocked on that output and was killed before it had saved.
class MpirunOnATerminal : public SignalsTest {
 protected:
  static constexpr const char* kLiveLine = "\rstep";  // there is no live line under mpirun

  // Returns the number of rounds in which the run saved; -1 if there are no pseudo-terminals.
  int saved(int rounds, bool is_typed) {
    int saved = 0;
    for (int round = 0; round < rounds; ++round) {
      std::filesystem::remove_all(folder_ / "run");
      PtyRun run("export " INGOT_MPI_ENVIRONMENT
                 " OMP_NUM_THREADS=1 OMP_WAIT_POLICY=passive; exec " INGOT_MPIRUN " -n 2 " INGOT_PROGRAM " " +
                 train("run",
                       "--set train.steps=100000 --set train.log_every=1 --set eval.every=0 "
                       "--set parallel.dp=2"));
      if (!run.is_started()) return -1;
      EXPECT_TRUE(run.read_until(std::to_string(10 + 7 * round % 80) + "/100000")) << run.output();
      if (is_typed)
        run.type("\x03");
      else
        run.send(SIGTERM);
      run.wait();
      EXPECT_THAT(run.output(), Not(HasSubstr(kLiveLine)));
      const Outcome found =
          bash("cd " + folder_.string() +
               "\ngrep -q '\"interrupted\"' run/run.json && ls -d run/checkpoints/step-*\n");
      const bool is_saved = found.exit_code == 0;
      if (!is_saved) ADD_FAILURE() << "round " << round << "\n" << run.output();
      saved += is_saved ? 1 : 0;
    }
    return saved;
  }
};
class LongMpirunOnATerminal : public MpirunOnATerminal {};
class SlowMpirunOnATerminal : public MpirunOnATerminal {};

TEST_F(LongMpirunOnATerminal, SigtermAndCtrlCSaveOnAllRanks) {
  require_mpi();
  if (IsSkipped()) return;
  for (const bool is_typed : {false, true}) {
    const int count = saved(2, is_typed);
    if (count < 0) GTEST_SKIP() << "no pseudo-terminals here";
    EXPECT_EQ(count, 2);
  }
}

TEST_F(SlowMpirunOnATerminal, AllOfFiftyEndingsAreSaved) {
  require_mpi();
  if (IsSkipped()) return;
  EXPECT_EQ(saved(25, false), 25);
  EXPECT_EQ(saved(25, true), 25);
}

TEST_F(SignalsTest, DoctorNamesAnOldOneDnn) {
  const Outcome outcome = bash("$program doctor");
  EXPECT_EQ(outcome.exit_code, 0);
  // 3.11.2 is the first version that does not.
  int major = 4, minor = 0, patch = 0;
  const size_t version = outcome.output.find("oneDNN ");
  if (version != std::string::npos) {
    ASSERT_EQ(std::sscanf(outcome.output.c_str() + version, "oneDNN %d.%d.%d", &major, &minor, &patch), 3);
  }
  const bool is_old = std::tuple(major, minor, patch) < std::tuple(3, 11, 2);
  EXPECT_EQ(outcome.output.find("moves the stack pointer into the heap") != std::string::npos, is_old)
      << outcome.output;
}

}  // namespace
}  // namespace ingot
