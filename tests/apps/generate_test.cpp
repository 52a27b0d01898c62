// ingot generate with several prompts, as a user calls it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/regress/run_program.h"

namespace ingot {
namespace {

using testing::HasSubstr;
using Json = nlohmann::json;

class GenerateTest : public ProgramInFolder {
 protected:
  void SetUp() override {
    const Outcome trained = run(small_run("run", {"train.steps=3"}));
    ASSERT_EQ(trained.exit_code, 0) << trained.output;
  }
  Outcome generate(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {"generate", path("run"), "--tokens", "12"});
    return run(arguments);
  }
  // Returns the objects that --json prints.
  std::vector<Json> objects(std::vector<std::string> arguments) {
    arguments.emplace_back("--json");
    const Outcome ended = generate(arguments);
    EXPECT_EQ(ended.exit_code, 0) << ended.output;
    std::vector<Json> all;
    std::istringstream lines(ended.output);
    for (std::string line; std::getline(lines, line);)
      if (line.starts_with('{')) all.push_back(Json::parse(line));
    return all;
  }
};

// Each prompt gets the same text as alone, in the order given, however many are generated at the same time.
TEST_F(GenerateTest, SeveralPromptsGiveTheTextsOfEachAlone) {
  const std::vector<std::string> prompts{"line 4", "a text, and much more of it", "9"};
  std::vector<std::string> all{"--seed", "5"};
  for (const std::string& prompt : prompts) all.insert(all.end(), {"--prompt", prompt});
  const std::vector<Json> together = objects(all);
  ASSERT_EQ(together.size(), 3u);
  for (size_t i = 0; i < prompts.size(); ++i) {
    const std::vector<Json> alone = objects({"--prompt", prompts[i], "--seed", std::to_string(5 + i)});
    EXPECT_EQ(alone, std::vector<Json>{together[i]});
    EXPECT_EQ(together[i]["prompt"], prompts[i]);
    EXPECT_TRUE(together[i]["text"].get<std::string>().starts_with(prompts[i]));
  }
  all.insert(all.end(), {"--batch-size", "2"});
  EXPECT_EQ(objects(all), together);
  const Outcome texts = generate(all);
  for (size_t i = 0; i < prompts.size(); ++i)
    EXPECT_THAT(texts.output, HasSubstr(fmt::format("--- prompt {} of 3\n{}", i + 1, prompts[i])));
}

// The likeliest tokens are those of the model whose weights have the codes' values, which `eval` computes.
TEST_F(GenerateTest, Int8WeightsGenerateAndAreEvaluated) {
  const std::vector<Json> all = objects({"--weights", "int8", "--prompt", "line", "--temperature", "0"});
  ASSERT_EQ(all.size(), 1u);
  EXPECT_GT(all[0]["text"].get<std::string>().size(), 4u);
  write_file(path("text.txt"), "a text whose loss is asked for, line by line");
  const auto loss = [&](const std::vector<std::string>& more) {
    std::vector<std::string> line{"eval", path("run"), "--data", path("text.txt"), "--json"};
    line.insert(line.end(), more.begin(), more.end());
    const Outcome ended = run(line);
    EXPECT_EQ(ended.exit_code, 0) << ended.output;
    return Json::parse(ended.output.substr(ended.output.find('{')))["loss"].get<double>();
  };
  const double exact = loss({}), rounded = loss({"--weights", "int8"});
  EXPECT_NE(rounded, exact);
  EXPECT_NEAR(rounded, exact, 0.02 * exact);
}

TEST_F(GenerateTest, ReadsPromptsFromFiles) {
  write_file(path("prompts.txt"), "line\r\n\n  two words\nlast");
  write_file(path("prompts.jsonl"),
             "{\"prompt\": \"line\"}\n{\"id\": 3, \"prompt\": \"  two words\"}\n{\"prompt\": \"last\"}\n");
  const std::vector<Json> lines = objects({"--prompts", path("prompts.txt")});
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_EQ(lines[1]["prompt"], "  two words");
  EXPECT_EQ(objects({"--prompts", path("prompts.jsonl")}), lines);
}

TEST_F(GenerateTest, RefusesWhatItCannotRead) {
  write_file(path("empty.txt"), "\n\n");
  write_file(path("bad.jsonl"), "{\"prompt\": \"a\"}\n{\"text\": \"b\"}\n");
  const auto refused = [&](const std::vector<std::string>& arguments, int code, const std::string& why) {
    const Outcome ended = generate(arguments);
    EXPECT_EQ(ended.exit_code, code) << ended.output;
    EXPECT_THAT(ended.output, HasSubstr(why));
  };
  refused({"--prompts", path("empty.txt")}, 3, "empty.txt: no prompt");
  refused({"--prompts", path("bad.jsonl")}, 3, "bad.jsonl");
  refused({"--prompts", path("none.txt")}, 3, "none.txt");
  refused({"--prompts", path("bad.jsonl"), "--prompt", "x"}, 2, "cannot be given together");
  refused({"--device", "gpu"}, 2, "--device must be cpu or cuda, got gpu");
  refused({"--compute", "int8"}, 2, "--compute must be f32, bf16 or f16, got int8");
  refused({"--weights", "bf16"}, 2, "--weights must be int8, got bf16; --compute chooses");
  refused({"--weights", "int8", "--device", "cuda"}, 2, "--weights int8 is for the CPU");
}

}  // namespace
}  // namespace ingot
