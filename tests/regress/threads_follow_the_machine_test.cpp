// Regression: the program took one thread per core of the host whatever its control group allowed, said
// nothing of more threads than cores, and its waiting threads spun for milliseconds.
#include <gmock/gmock.h>
#include <sched.h>

#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "tests/regress/run_program.h"

namespace ingot {
namespace {

using testing::HasSubstr;

class ThreadsFollowTheMachine : public ProgramInFolder {
 protected:
  nlohmann::json record(const std::string& out) const {
    return nlohmann::json::parse(read_file(folder_ / out / "run.json"));
  }
  // Runs the program with one core.
  Outcome run_on_one_core(const std::vector<std::string>& arguments) const {
    cpu_set_t before, one;
    sched_getaffinity(0, sizeof before, &before);
    CPU_ZERO(&one);
    for (int cpu = 0; cpu < CPU_SETSIZE && CPU_COUNT(&one) == 0; ++cpu)
      if (CPU_ISSET(cpu, &before)) CPU_SET(cpu, &one);
    sched_setaffinity(0, sizeof one, &one);
    const Outcome ended = run(arguments);
    sched_setaffinity(0, sizeof before, &before);
    return ended;
  }
};

TEST_F(ThreadsFollowTheMachine, ARunSaysWhoDecidedAndWarnsOfTooManyThreads) {
  unsetenv("OMP_NUM_THREADS");
  const Outcome many = run_on_one_core(small_run("many", {"train.steps=1", "train.threads=7"}));
  EXPECT_EQ(many.exit_code, 0) << many.output;
  EXPECT_THAT(many.output, HasSubstr("warning: train.threads = 7 is more than the 1 that"));
  EXPECT_EQ(record("many")["threads"], 7);
  EXPECT_EQ(record("many")["threads_limit"], "train.threads");
  const Outcome own = run_on_one_core(small_run("own", {"train.steps=1"}));
  EXPECT_EQ(own.output.find("warning"), std::string::npos) << own.output;
  EXPECT_EQ(record("own")["threads"], 1);
}

TEST_F(ThreadsFollowTheMachine, DoctorSaysWhoDecided) {
  setenv("OMP_NUM_THREADS", "3", 1);
  const Outcome ended = run_on_one_core({"doctor"});
  unsetenv("OMP_NUM_THREADS");
  EXPECT_THAT(ended.output, HasSubstr("3 threads by default: OMP_NUM_THREADS"));
  EXPECT_THAT(ended.output, HasSubstr("note: OMP_NUM_THREADS = 3 is more than the 1 that"));
}

#ifdef INGOT_WITH_OPENMP
TEST_F(ThreadsFollowTheMachine, TheProgramLimitsHowLongItsThreadsSpin) {
  // Returns the environment that libgomp read in a program that was started with one more variable.
  const auto environment_of = [&](const char* name, const char* value) {
    const std::string program = INGOT_PROGRAM;
    const pid_t pid = fork();
    if (pid == 0) {
      for (const char* wait : {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT"}) unsetenv(wait);
      setenv(name, value, 1);
      const int nowhere = open("/dev/null", O_WRONLY);
      dup2(nowhere, STDOUT_FILENO);
      execl(program.c_str(), program.c_str(), "serve", folder_.c_str(), "--port", "0", nullptr);
      _exit(127);
    }
    std::this_thread::sleep_for(std::chrono::seconds(1));
    std::ifstream in(fmt::format("/proc/{}/environ", pid));
    std::string text(std::istreambuf_iterator<char>(in), {});
    kill(pid, SIGKILL);
    waitpid(pid, nullptr, 0);
    return text;
  };
  EXPECT_THAT(environment_of("INGOT_OTHER", "1"), HasSubstr("GOMP_SPINCOUNT=10000"));
  EXPECT_THAT(environment_of("OMP_WAIT_POLICY", "active"), testing::Not(HasSubstr("GOMP_SPINCOUNT")));
}
#endif

}  // namespace
}  // namespace ingot
