// ingot eval --tasks, as a user calls it, with a model whose answers are known.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/regress/run_program.h"

namespace ingot {
namespace {

using testing::HasSubstr;
using EvalJson = nlohmann::json;

class EvalTasks : public ProgramInFolder {
 protected:
  // The model learns that "a:" is followed by "yes" and "b:" by "no".
  void SetUp() override {
    std::string text;
    for (int i = 0; text.size() < 20'000; ++i) text += i * i % 7 % 2 == 0 ? "a: yes\n" : "b: no\n";
    write_file(path("text.txt"), text);
    const Outcome trained = run(small_run("run", {"train.steps=200", "optimizer.lr=1e-2"}));
    ASSERT_EQ(trained.exit_code, 0) << trained.output;
    const auto question = [](const char* stem, const char* key) {
      return fmt::format(
          R"({{"question_stem": "{}", "choices": {{"text": ["yes", "no"], "label": ["A", "B"]}},)"
          R"( "answerKey": "{}"}})"
          "\n",
          stem, key);
    };
    write_file(path("known.jsonl"), question("a:", "A") + question("b:", "B") + question("a: yes\\nb:", "B") +
                                        question("b:", "A"));
    write_file(path("words.jsonl"), "{\"text\": \"b: no\\na: yes\"}\n{\"text\": \"a: no\"}\n");
    std::string core;
    for (int i = 0; i < 5; ++i)
      core +=
          "{\"query\": \"a:\", \"choices\": [\"yes\", \"no\"], \"gold\": 0}\n"
          "{\"query\": \"b:\", \"choices\": [\"yes\", \"no\"], \"gold\": 1}\n";
    write_file(path("core.jsonl"), core);
  }
  Outcome eval(std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(), {"eval", path("run")});
    return run(arguments);
  }
  EvalJson results(std::vector<std::string> arguments) const {
    arguments.insert(arguments.end(), {"--quiet", "--json"});
    const Outcome ended = eval(arguments);
    EXPECT_EQ(ended.exit_code, 0) << ended.output;
    return EvalJson::parse(ended.output.substr(ended.output.find('{')));
  }
};

TEST_F(EvalTasks, ScoresTheKnownAnswers) {
  const EvalJson all = results({"--tasks", path("known.jsonl"), path("words.jsonl"), path("core.jsonl")});
  ASSERT_EQ(all.size(), 1u);
  const EvalJson& known = all["tasks"]["known"];
  EXPECT_EQ(known["acc"], 0.75);
  EXPECT_EQ(known["acc_norm"], 0.75);
  EXPECT_NEAR(known["stderr"].get<double>(), 0.25, 1e-12) << "sqrt(3 / 4 / 3) / sqrt(4)";
  EXPECT_EQ(known["n"], 4);
  EXPECT_EQ(known["shape"], "openbookqa");
  const EvalJson& words = all["tasks"]["words"];
  EXPECT_EQ(words["acc"], 0.5);
  EXPECT_TRUE(words["acc_norm"].is_null());
  EXPECT_GT(words["perplexity"], 1);
  const EvalJson& core = all["tasks"]["core"];
  EXPECT_EQ(core["acc"], 1) << "without an error of rounding";
  EXPECT_EQ(core["n"], 10);
  EXPECT_EQ(core["centered"], 1);
  EXPECT_EQ(core["cut"], 0);
  // One record at a time, and other formats of the weights, give the same answers.
  EXPECT_EQ(results({"--tasks", path("known.jsonl"), "--batch-size", "1"})["tasks"]["known"], known);
  EXPECT_EQ(results({"--tasks", path("known.jsonl"), "--compute", "bf16"})["tasks"]["known"]["acc"], 0.75);
  EXPECT_EQ(results({"--tasks", path("known.jsonl"), "--weights", "int8"})["tasks"]["known"]["acc"], 0.75);
  // Examples of about 8 tokens each do not fit into the context of 32.
  const EvalJson shots = results({"--tasks", path("known.jsonl"), "--shots", "3"})["tasks"]["known"];
  EXPECT_EQ(shots["shots"], 3);
  EXPECT_GT(shots["cut"], 0);
  EXPECT_THAT(
      eval({"--tasks", path("known.jsonl"), "--shots", "3"}).output,
      HasSubstr(
          "known.jsonl:1: 8 of 8 prompts, this one the first, are longer than the model's context of 32"));
  const Outcome table = eval({"--tasks", path("known.jsonl"), path("words.jsonl")});
  EXPECT_THAT(table.output, HasSubstr("known  openbookqa             4  0.7500 +- 0.2500  0.7500 +- 0.2500"));
}

TEST_F(EvalTasks, SamplesHaveTheNumbersOfEveryRecord) {
  const EvalJson all =
      results({"--tasks", path("words.jsonl"), path("known.jsonl"), "--samples", path("samples.jsonl")});
  std::istringstream lines(read_file(path("samples.jsonl")));
  std::vector<EvalJson> samples;
  for (std::string line; std::getline(lines, line);) samples.push_back(EvalJson::parse(line));
  ASSERT_EQ(samples.size(), 6u);
  double sum = 0;
  for (size_t i = 0; i < 2; ++i) sum += samples[i]["log_likelihoods"][0].get<double>();
  EXPECT_NEAR(std::exp(-sum / 2), all["tasks"]["words"]["perplexity"].get<double>(), 1e-12);
  EXPECT_EQ(samples[0]["is_greedy"], EvalJson::array({true}));
  EXPECT_EQ(samples[1]["is_greedy"], EvalJson::array({false}));
  EXPECT_EQ(samples[5]["task"], "known");
  EXPECT_EQ(samples[5]["line"], 4);
  EXPECT_EQ(samples[5]["answer"], 0);
  EXPECT_LT(samples[5]["log_likelihoods"][0], samples[5]["log_likelihoods"][1])
      << "the wrong answer is likelier";
}

TEST_F(EvalTasks, RefusesBadInputInOneLine) {
  write_file(path("hidden.jsonl"), "{\"goal\": \"g\", \"sol1\": \"a\", \"sol2\": \"b\", \"label\": -1}\n");
  write_file(path("long.jsonl"),
             "{\"query\": \"a\", \"choices\": [\"" + std::string(40, 'x') + "\", \"y\"], \"gold\": 0}\n");
  make_folders(path("other"));
  write_file(path("other/known.jsonl"), "{\"text\": \"a b\"}\n");
  const auto refused = [&](const std::vector<std::string>& arguments, int code, const std::string& why) {
    const Outcome ended = eval(arguments);
    EXPECT_EQ(ended.exit_code, code) << ended.output;
    EXPECT_THAT(ended.output, HasSubstr(why));
  };
  refused({}, 2, "eval needs either --data, for the loss on text, or --tasks");
  refused({"--tasks", path("known.jsonl"), "--data", path("text.txt")}, 2, "eval needs either --data");
  refused({"--tasks", path("known.jsonl"), "--max-tokens", "5"}, 2, "--max-tokens is for --data");
  refused({"--data", path("text.txt"), "--shots", "1"}, 2,
          "--shots, --shots-from and --samples are for --tasks");
  refused({"--tasks", path("text.txt")}, 3,
          "text.txt:1: column 1 is not valid JSON; write one JSON object per line");
  write_file(path("empty.jsonl"), "");
  refused({"--tasks", path("empty.jsonl")}, 3, "empty.jsonl: has no records; write one JSON object per line");
  refused({"--tasks", path("hidden.jsonl")}, 3,
          "hidden.jsonl:1: no answer: \"label\" is -1; take a split with answers");
  refused({"--tasks", path("long.jsonl")}, 3,
          "long.jsonl:1: the answer has 40 tokens, and the context of the model 32");
  refused({"--tasks", path("known.jsonl"), path("other/known.jsonl")}, 2, "have the same name");
  refused({"--tasks", path("known.jsonl"), "--shots", "4"}, 2, "--shots 4: ");
  refused({"--tasks", path("known.jsonl"), "--shots-from", path("known.jsonl")}, 2, "--shots-from needs");
  refused({"--data", path("text.txt"), "--device", "cuda"}, 2, "--device cuda is for --tasks");
  refused({"--tasks", path("known.jsonl"), "--device", "gpu"}, 2, "--device must be cpu or cuda, got gpu");
}

}  // namespace
}  // namespace ingot
