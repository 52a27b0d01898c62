// Tests of the command `ingot compare`, run as a separate process on runs that `ingot train` made.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "ingot/core/file.h"
#include "tests/regress/run_program.h"

namespace ingot {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;

class CompareCommand : public ProgramInFolder {
 protected:
  void train(const std::string& out, const std::vector<std::string>& settings) const {
    std::vector<std::string> all = {"train.steps=40", "train.threads=1", "eval.max_tokens=512"};
    all.insert(all.end(), settings.begin(), settings.end());
    const Outcome ended = run(small_run(out, all));
    ASSERT_EQ(ended.exit_code, 0) << ended.output;
  }
  json compared(const std::vector<std::string>& runs) const {
    std::vector<std::string> words = {"compare", "--json"};
    for (const std::string& name : runs) words.push_back(path(name));
    const Outcome ended = run(words);
    EXPECT_EQ(ended.exit_code, 0) << ended.output;
    return json::parse(ended.output);
  }
};

TEST_F(CompareCommand, ShowsWhatDiffersAndByHowMuch) {
  write_file(path("colours.jsonl"), R"({"query": "line", "choices": [" 4", " red"], "gold": 0})"
                                    "\n");
  const std::string tasks = "eval.tasks=[\"" + path("colours.jsonl") + "\"]";
  train("low", {"optimizer.lr=1e-4", tasks});
  train("high", {"optimizer.lr=1e-2", tasks});
  const Outcome text = run({"compare", path("low"), path("high"), "--html", path("page.html")});
  ASSERT_EQ(text.exit_code, 0) << text.output;
  EXPECT_THAT(text.output, AllOf(HasSubstr("* 1: optimizer.lr=0.0001"), HasSubstr("o 2: optimizer.lr=0.01"),
                                 HasSubstr("lower"), HasSubstr("written: ")));
  const std::string page = read_file(path("page.html"));
  EXPECT_THAT(page, AllOf(HasSubstr("<svg"), HasSubstr("optimizer.lr"), HasSubstr("train loss")));

  const json both = compared({"low", "high"});
  ASSERT_EQ(both["settings"].size(), 1u) << both["settings"];
  EXPECT_EQ(both["settings"][0]["key"], "optimizer.lr");
  for (const json& difference : both["differences"]) {
    if (difference["quantity"] == "colours acc") continue;
    EXPECT_LT(difference["mean"].get<double>(), -0.3);
  }
  EXPECT_EQ(both["runs"][0]["tokens"], 40 * 2 * 32);
  const json low = json::parse(read_file(path("low/run.json")));
  EXPECT_EQ(both["runs"][0]["val_loss"], low["val_loss"]);
  EXPECT_EQ(both["runs"][0]["figures"]["colours acc"], low["tasks"]["colours"]["acc"]);
  EXPECT_EQ(both["runs"][0]["status"], "completed");
}

TEST_F(CompareCommand, ARunAgainIsTheSameToTheBit) {
  train("one", {});
  train("again", {});
  const json same = compared({"one", "again"});
  EXPECT_EQ(same["groups"].size(), 2u);
  EXPECT_TRUE(same["settings"].empty()) << same["settings"];
  for (const json& difference : same["differences"]) EXPECT_EQ(difference["mean"], 0.0);
}

TEST_F(CompareCommand, ASweepsFolderStandsForItsRuns) {
  std::vector<std::string> words = small_run("s", {"train.steps=10"});
  words[0] = "sweep";
  words.insert(words.end(), {"--vary", "optimizer.lr=1e-3,1e-2", "--seeds", "2"});
  ASSERT_EQ(run(words).exit_code, 0);
  const json sweep = compared({"s"});
  EXPECT_EQ(sweep["runs"].size(), 4u);
  EXPECT_EQ(sweep["groups"].size(), 2u);
  EXPECT_THAT(sweep["differences"][0]["method"].get<std::string>(), HasSubstr("paired over 2 seeds"));
}

TEST_F(CompareCommand, BadInputIsRefusedByName) {
  train("one", {});
  const Outcome single = run({"compare", path("one")});
  EXPECT_EQ(single.exit_code, 2);
  EXPECT_THAT(single.output, HasSubstr("a comparison takes two runs or more"));
  const Outcome nowhere = run({"compare", path("one"), path("nowhere")});
  EXPECT_EQ(nowhere.exit_code, 2);
  EXPECT_THAT(nowhere.output, AllOf(HasSubstr("nowhere"), HasSubstr("it has no run.json")));
  train("two", {});
  write_file(path("two/run.json"), "{");
  const Outcome damaged = run({"compare", path("one"), path("two")});
  EXPECT_EQ(damaged.exit_code, 3);
  EXPECT_THAT(damaged.output, HasSubstr("two/run.json"));
  // A torn last line, which a killed run leaves, is no damage.
  train("three", {});
  const std::string metrics = read_file(path("three/metrics.jsonl"));
  write_file(path("three/metrics.jsonl"), metrics.substr(0, metrics.size() / 2));
  EXPECT_EQ(run({"compare", path("one"), path("three")}).exit_code, 0);
}

}  // namespace
}  // namespace ingot
