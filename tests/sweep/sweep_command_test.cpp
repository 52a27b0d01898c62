// Tests of the command `ingot sweep`, run as a separate process.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "ingot/core/file.h"
#include "tests/regress/run_program.h"

namespace ingot {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

class SweepCommand : public ProgramInFolder {
 protected:
  // Returns the arguments of a sweep of a very small model into folder `out`.
  std::vector<std::string> line(const std::string& out, const std::vector<std::string>& vary,
                                const std::vector<std::string>& more = {}) const {
    std::vector<std::string> words = small_run(out, {"train.steps=12", "checkpoint.every=2"});
    words[0] = "sweep";
    for (const std::string& one : vary) words.insert(words.end(), {"--vary", one});
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
  json result(const std::string& out) const { return json::parse(read_file(path(out) + "/sweep.json")); }
  static std::map<std::string, int> statuses(const json& sweep) {
    std::map<std::string, int> counts;
    for (const json& run : sweep["runs"]) ++counts[run["status"].get<std::string>()];
    return counts;
  }
};

TEST_F(SweepCommand, TrainsEverySettingAndWritesTheTable) {
  const Outcome ended = run(line("s", {"optimizer.lr=1e-4..1e-2:log:3", "model.norm=rmsnorm,layernorm"},
                                 {"--seeds", "2", "--jobs", "2"}));
  ASSERT_EQ(ended.exit_code, 0) << ended.output;
  EXPECT_THAT(ended.output,
              AllOf(HasSubstr("12 runs, 2 at a time"), HasSubstr("| optimizer.lr | model.norm |"),
                    HasSubstr("Optimum of optimizer.lr"), HasSubstr("s/report.html")));
  const json sweep = result("s");
  EXPECT_EQ(statuses(sweep), (std::map<std::string, int>{{"completed", 12}}));
  for (const json& run : sweep["runs"]) {
    EXPECT_EQ(run["steps"], 12);
    EXPECT_EQ(run["tokens"], 12 * 2 * 32);
    EXPECT_TRUE(std::filesystem::exists(path("s/") + run["folder"].get<std::string>() + "/run.json"));
  }
  // The best is one of the settings, and its loss the mean of its runs.
  double sum = 0;
  int count = 0;
  for (const json& run : sweep["runs"])
    if (run["set"] == sweep["best"]["set"]) {
      sum += run["val_loss"].get<double>();
      ++count;
    }
  ASSERT_EQ(count, 2);
  EXPECT_NEAR(sweep["best"]["val_loss"].get<double>(), sum / 2, 1e-12);
  for (const char* file : {"table.md", "table.csv", "report.html", "optimizer.lr.svg", "model.norm.svg"})
    EXPECT_GT(read_file(path("s/") + file).size(), 100u) << file;
}

TEST_F(SweepCommand, ARunIsTheSameAsByTrain) {
  ASSERT_EQ(run(line("s", {"optimizer.lr=2e-3"})).exit_code, 0);
  const json sweep = result("s");
  const Outcome alone = run(small_run(
      "alone", {"train.steps=12", "optimizer.lr=2e-3", "train.threads=" + sweep["threads"].dump()}));
  ASSERT_EQ(alone.exit_code, 0) << alone.output;
  const json record = json::parse(read_file(path("alone/run.json")));
  EXPECT_EQ(sweep["runs"][0]["val_loss"].get<double>(), record["val_loss"].get<double>());
}

TEST_F(SweepCommand, KilledAtAnyMomentItGoesOnToTheSameTable) {
  const std::vector<std::string> vary = {"optimizer.lr=1e-3,1e-2", "train.steps=16,40"};
  const std::vector<std::string> more = {"--seeds", "2", "--jobs", "2"};
  ASSERT_EQ(run(line("whole", vary, more)).exit_code, 0);
  const uint64_t seed = std::random_device()();
  SCOPED_TRACE(fmt::format("seed {}", seed));
  std::mt19937_64 random(seed);
  int kills = 0;
  for (int attempt = 0; attempt < 6; ++attempt) {
    const pid_t pid = start(line("s", vary, more));
    std::this_thread::sleep_for(std::chrono::milliseconds(30 + random() % 400));
    kill(pid, SIGKILL);
    kills += wait(pid).exit_code == 128 + SIGKILL;
  }
  EXPECT_GT(kills, 0) << "the sweep was too fast to be killed";
  // The runs of a killed sweep end soon after it: each has lost the process that started it.
  Outcome last;
  for (int attempt = 0; attempt < 40; ++attempt) {
    last = run(line("s", vary, more));
    if (last.exit_code == 0) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(250));
  }
  ASSERT_EQ(last.exit_code, 0) << last.output;
  EXPECT_EQ(result("s")["runs"], result("whole")["runs"]);
  EXPECT_EQ(read_file(path("s/table.csv")), read_file(path("whole/table.csv")));
}

TEST_F(SweepCommand, AFinishedSweepChangesNothing) {
  ASSERT_EQ(run(line("s", {"optimizer.lr=1e-3,1e-2"})).exit_code, 0);
  const auto times = [&] {
    std::map<std::string, std::filesystem::file_time_type> found;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(path("s")))
      if (entry.is_regular_file() && entry.path().filename() != ".lock")
        found[entry.path().string()] = entry.last_write_time();
    return found;
  };
  const auto before = times();
  ASSERT_EQ(run(line("s", {"optimizer.lr=1e-3,1e-2"})).exit_code, 0);
  EXPECT_EQ(times(), before);
}

TEST_F(SweepCommand, ValuesAndSeedsAreAdded) {
  ASSERT_EQ(run(line("s", {"optimizer.lr=1e-3,1e-2"})).exit_code, 0);
  const json before = result("s");
  ASSERT_EQ(run(line("s", {"optimizer.lr=3e-3"}, {"--seeds", "2"})).exit_code, 0);
  const json after = result("s");
  ASSERT_EQ(after["runs"].size(), 6u);
  EXPECT_EQ(after["vary"][0]["values"], (json{"0.001", "0.003", "0.01"}));
  EXPECT_EQ(after["runs"][0], before["runs"][0]);
  EXPECT_EQ(after["runs"][2], before["runs"][1]);
}

TEST_F(SweepCommand, ADivergingRunIsAResult) {
  const Outcome ended = run(line("s", {"optimizer.lr=1e-3,1e30"},
                                 {"--set", "optimizer.kind=sgd", "--set", "optimizer.grad_clip=0"}));
  ASSERT_EQ(ended.exit_code, 0) << ended.output;
  const json sweep = result("s");
  EXPECT_EQ(sweep["runs"][1]["status"], "diverged") << sweep.dump(2);
  EXPECT_EQ(sweep["best"]["set"], (json{{"optimizer.lr", 0.001}}));
  EXPECT_THAT(read_file(path("s/table.md")), HasSubstr("| diverged |"));
}

TEST_F(SweepCommand, AFailedRunIsNamedAndTriedAgain) {
  std::vector<std::string> words = line("s", {"optimizer.lr=1e-3,1e-2"}, {"--jobs", "1"});
  ASSERT_EQ(run(words).exit_code, 0);
  const std::string text = read_file(path("text.txt"));
  std::filesystem::remove(path("text.txt"));
  std::filesystem::remove_all(path("s/") + result("s")["runs"][1]["folder"].get<std::string>());
  const Outcome failed = run(words);
  EXPECT_EQ(failed.exit_code, 3) << failed.output;
  EXPECT_THAT(failed.output, AllOf(HasSubstr("1 of 2 runs failed; the first, optimizer.lr=0.01"),
                                   HasSubstr("the same command tries them again")));
  EXPECT_EQ(result("s")["runs"][1]["status"], "failed");
  EXPECT_FALSE(result("s")["runs"][1]["error"].get<std::string>().empty());
  write_file(path("text.txt"), text);
  EXPECT_EQ(run(words).exit_code, 0);
  EXPECT_EQ(statuses(result("s")), (std::map<std::string, int>{{"completed", 2}}));
}

TEST_F(SweepCommand, SignalsAndTheBudgetEndItWithTheRunsSaved) {
  const std::vector<std::string> vary = {"optimizer.lr=1e-3,1e-2"};
  const std::vector<std::string> longer = {"--set", "train.steps=100000", "--jobs", "2"};
  for (const int signal : {SIGTERM, SIGINT}) {
    const std::string out = fmt::format("s{}", signal);
    const pid_t pid = start(line(out, vary, longer));
    const json planned = [&] {
      EXPECT_TRUE(comes(path(out) + "/sweep.json"));
      return result(out);
    }();
    for (const json& run : planned["runs"])  // run.json comes after the text was read
      EXPECT_TRUE(comes(path(out) + "/" + run["folder"].get<std::string>() + "/run.json"));
    kill(pid, signal);
    const Outcome ended = wait(pid);
    EXPECT_EQ(ended.exit_code, 75) << ended.output;
    EXPECT_THAT(ended.output, AllOf(HasSubstr("the same command goes on"), HasSubstr("interrupted")));
    EXPECT_EQ(statuses(result(out)), (std::map<std::string, int>{{"interrupted", 2}})) << ended.output;
  }
  std::vector<std::string> budget = line("b", vary, longer);
  budget.insert(budget.end(), {"--budget", "1s"});
  const Outcome ended = run(budget);
  EXPECT_EQ(ended.exit_code, 75) << ended.output;
  EXPECT_THAT(ended.output, HasSubstr("the budget is used up; go on with the same command"));
}

TEST_F(SweepCommand, HalvingStopsTheWorstAndTrainsTheBestToTheEnd) {
  const Outcome ended =
      run(line("s", {"optimizer.lr=1e-6,1e-5,1e-4,1e-2"}, {"--halving", "2", "--set", "train.steps=16"}));
  ASSERT_EQ(ended.exit_code, 0) << ended.output;
  const json sweep = result("s");
  EXPECT_EQ(statuses(sweep), (std::map<std::string, int>{{"completed", 1}, {"stopped", 3}}));
  std::vector<int> steps;
  for (const json& run : sweep["runs"]) steps.push_back(run["steps"]);
  EXPECT_THAT(steps, ElementsAre(4, 4, 8, 16));
  EXPECT_EQ(sweep["best"]["set"], (json{{"optimizer.lr", 0.01}}));
  // The survivor, stopped twice on its way, has the loss of a run that was never stopped.
  const Outcome alone = run(small_run("alone", {"train.steps=16", "optimizer.lr=1e-2", "checkpoint.every=2",
                                                "train.threads=" + sweep["threads"].dump()}));
  ASSERT_EQ(alone.exit_code, 0);
  EXPECT_EQ(sweep["runs"][3]["val_loss"].get<double>(),
            json::parse(read_file(path("alone/run.json")))["val_loss"].get<double>());
  EXPECT_THAT(read_file(path("s/table.md")), HasSubstr("the best 1/2 of the settings went on"));
}

TEST_F(SweepCommand, JsonAndDryRun) {
  const Outcome dry = run(line("s", {"optimizer.lr=1e-3,1e-2"}, {"--seeds", "2", "--dry-run"}));
  EXPECT_EQ(dry.exit_code, 0) << dry.output;
  EXPECT_THAT(dry.output, AllOf(HasSubstr("optimizer.lr=0.01 seed="), HasSubstr("4 runs, ")));
  EXPECT_FALSE(std::filesystem::exists(path("s")));
  ASSERT_EQ(run(line("s", {"optimizer.lr=1e-3"}, {"--json"})).exit_code, 0);
  const Outcome again = run(line("s", {"optimizer.lr=1e-3"}, {"--json"}));
  // Progress goes to stderr, which the test reads together with the JSON.
  EXPECT_EQ(json::parse(again.output.substr(again.output.find("{\n"))), result("s"));
}

TEST_F(SweepCommand, RefusesBadInputAndLeavesTheFolderAlone) {
  const auto refusal = [&](const std::vector<std::string>& words) {
    const Outcome ended = run(words);
    EXPECT_EQ(ended.exit_code, 2) << ended.output;
    return ended.output;
  };
  EXPECT_THAT(refusal(line("s", {"optimizer.rl=1,2"})), HasSubstr("did you mean optimizer.lr?"));
  EXPECT_THAT(refusal(line("s", {"optimizer.lr=1e-3..1e-2:lo:3"})), HasSubstr("did you mean log?"));
  EXPECT_THAT(refusal(line("s", {"model.width=32,33"})), HasSubstr("model.width=33"));
  EXPECT_THAT(refusal(line("s", {"optimizer.lr=1e-3"}, {"--budget", "soon"})),
              HasSubstr("a time such as 30m"));
  EXPECT_THAT(refusal(line("s", {"optimizer.lr=1e-3"}, {"--halving", "1.5"})), HasSubstr("2 or more"));
  EXPECT_THAT(refusal(line("s", {"optimizer.lr=1e-3"}, {"--halving", "2", "--set", "train.max_time=1m"})),
              HasSubstr("train.max_time must be 0"));
  EXPECT_FALSE(std::filesystem::exists(path("s")));

  ASSERT_EQ(run(line("s", {"optimizer.lr=1e-3"})).exit_code, 0);
  const std::string before = read_file(path("s/sweep.json"));
  EXPECT_THAT(refusal(line("s", {"optimizer.lr=1e-3"}, {"--set", "model.layers=2"})),
              AllOf(HasSubstr("of another configuration"), HasSubstr("choose another --out")));
  EXPECT_THAT(refusal(line("s", {"optimizer.beta1=0.9"})), HasSubstr("over other keys"));
  EXPECT_THAT(refusal(line("s", {"optimizer.lr=1e-3"}, {"--halving", "2"})),
              HasSubstr("with another --halving"));
  EXPECT_EQ(read_file(path("s/sweep.json")), before);
}

TEST_F(SweepCommand, TwoSweepsDoNotShareAFolder) {
  const std::vector<std::string> longer = {"--set", "train.steps=100000"};
  const pid_t first = start(line("s", {"optimizer.lr=1e-3"}, longer));
  ASSERT_TRUE(comes(path("s/sweep.json")));
  const std::string output = read_file(path("output"));
  const Outcome second = run(line("s", {"optimizer.lr=1e-3"}, longer));
  EXPECT_NE(second.exit_code, 0);
  EXPECT_THAT(second.output, HasSubstr(path("s")));
  kill(first, SIGTERM);
  EXPECT_EQ(wait(first).exit_code, 75);
}

}  // namespace
}  // namespace ingot
