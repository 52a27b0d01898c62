// Sweeps whose runs have several ranks.
#include <nlohmann/json.hpp>

#include "tests/apps/launch_fixture.h"

namespace ingot {
namespace {

using nlohmann::json;
using testing::HasSubstr;

class SweepOfRanks : public LaunchTest {
 protected:
  // The arguments of a sweep over runs of these numbers of ranks.
  std::string sweep(const std::string& out, const std::string& ranks, const std::string& more) const {
    return "sweep" + train(out, more).substr(5) + " --vary parallel.dp=" + ranks +
           " --jobs 1 --set checkpoint.every=4 --mpirun '" INGOT_MPIRUN "'";
  }
  json runs(const std::string& out) const {
    return json::parse(read_file(folder_ / out / "sweep.json"))["runs"];
  }
};

TEST_F(SweepOfRanks, ARunOfTwoRanksIsTheSameAsByTrain) {
  const Outcome swept = bash("$program " + sweep("s", "1,2", "--set train.steps=8 --set train.threads=1"));
  ASSERT_EQ(swept.exit_code, 0) << swept.output;
  EXPECT_THAT(swept.output, HasSubstr("2 runs, 1 at a time with up to 2 ranks of 1 threads each"));
  const Outcome alone = bash("run 2 " + train("alone",
                                              "--set train.steps=8 --set train.threads=1"
                                              " --set parallel.dp=2 --set checkpoint.every=4"));
  ASSERT_EQ(alone.exit_code, 0) << alone.output;
  ASSERT_EQ(runs("s").size(), 2u);
  for (const json& run : runs("s")) EXPECT_EQ(run["status"], "completed") << run.dump(2);
  const std::vector<double> expected = losses("alone");
  ASSERT_GE(expected.size(), 8u);
  EXPECT_EQ(losses("s/" + runs("s")[1]["folder"].get<std::string>()), expected);
  // A finished sweep starts nothing.
  EXPECT_EQ(bash("$program " + sweep("s", "1,2", "--set train.steps=8 --set train.threads=1")).exit_code, 0);
}

TEST_F(SweepOfRanks, ASignalLetsAllRanksSave) {
  const Outcome ended = bash("$program " + sweep("s", "2", "--set train.steps=100000") +
                             " & job=$!\n"
                             "for i in $(seq 600); do ls -d s/runs/*/checkpoints/step-* >/dev/null 2>&1 && "
                             "break; sleep 0.1; done\nkill -TERM $job; wait $job; exit $?");
  EXPECT_EQ(ended.exit_code, 75) << ended.output;
  EXPECT_EQ(runs("s")[0]["status"], "interrupted") << ended.output;
  EXPECT_GT(runs("s")[0]["steps"], 0);
}

TEST_F(SweepOfRanks, TheErrorOfARankIsThatOfTheRun) {
  const std::string command = "$program " + sweep("s", "2", "--set train.steps=8");
  ASSERT_EQ(bash(command).exit_code, 0);
  std::filesystem::remove(folder_ / "text.txt");
  std::filesystem::remove_all(folder_ / "s" / runs("s")[0]["folder"].get<std::string>());
  const Outcome failed = bash(command);
  EXPECT_EQ(failed.exit_code, 3) << failed.output;
  EXPECT_EQ(runs("s")[0]["status"], "failed");
  EXPECT_THAT(runs("s")[0]["error"].get<std::string>(), HasSubstr("text.txt"));
}

}  // namespace
}  // namespace ingot
