// Further validation texts (data.val_sets), the loss that decides which checkpoint is the best
// (eval.best_by), and runs that end when it stays high (eval.patience).
#include <gmock/gmock.h>

#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "ingot/checkpoint/checkpoint_store.h"
#include "ingot/core/error.h"
#include "ingot/formats/metrics_log.h"
#include "ingot/run/data/run_data.h"
#include "ingot/run/eval/run_eval.h"
#include "tests/config/built_config.h"
#include "tests/reference/error_of.h"
#include "tests/run/training_fixture.h"

namespace ingot {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using testing::Pair;

class ValidationSetsTest : public TrainingTest {
 protected:
  // The model learns words of small letters, so its loss on capitals rises.
  RunConfig sets_config() {
    write_file(folder / "val.txt", read_file(text).substr(0, 2000));
    std::string capitals;
    for (int i = 0; i < 1500; ++i) capitals += static_cast<char>('A' + i * i % 26);
    write_file(folder / "capitals.txt", capitals);
    RunConfig c = config(DType::f32);
    c.data.tokenizer = "byte";
    c.data.val = {(folder / "val.txt").string()};
    c.data.val_sets = {"same=" + (folder / "val.txt").string(),
                       "capitals=" + (folder / "capitals.txt").string()};
    c.train.steps = 40;
    c.optimizer.lr = 3e-3;
    c.eval.every = 5;
    c.eval.max_tokens = 0;
    c.checkpoint.every = 0;
    return c;
  }
  static std::map<int64_t, double> curve(const std::filesystem::path& run, const std::string& key) {
    std::map<int64_t, double> values;
    for (const MetricsRow& row : read_metrics(run / "metrics.jsonl"))
      if (const auto value = row.number(key))
        values[static_cast<int64_t>(row.number("step").value_or(-1))] = *value;
    return values;
  }
  static int64_t lowest_step(const std::map<int64_t, double>& losses) {
    return std::ranges::min_element(losses, {}, [](const auto& l) { return l.second; })->first;
  }
};

TEST_F(ValidationSetsTest, EachHasItsLossAndTheRunsIsUnchanged) {
  const std::filesystem::path run = folder / "run", plain = folder / "plain";
  RunConfig c = sets_config();
  train(c, run);
  c.data.val_sets.clear();
  train(c, plain);
  const auto losses = curve(run, "val_loss"), capitals = curve(run, "val_loss/capitals");
  EXPECT_EQ(losses.size(), 8u);
  EXPECT_EQ(losses, curve(plain, "val_loss"));
  EXPECT_EQ(curve(run, "loss"), curve(plain, "loss"));
  EXPECT_EQ(curve(run, "val_loss/same"), losses);
  EXPECT_GT(capitals.at(40), capitals.at(5)) << "the model forgets capitals";
  const EvalOptions options{.data = {(folder / "capitals.txt").string()}};
  EXPECT_NEAR(evaluate_checkpoint(run, options).result.loss, capitals.at(40), 1e-5);
  EXPECT_THAT(said, HasSubstr(fmt::format("val step 40 | same {:.4f} | capitals {:.4f}", losses.at(40),
                                          capitals.at(40))));
  const auto json = nlohmann::json::parse(read_file(run / "run.json"));
  EXPECT_EQ(json["val_loss"], losses.at(40));
  EXPECT_EQ(json["val_losses"]["capitals"], capitals.at(40));
  EXPECT_THAT(read_file(run / "report.html"), HasSubstr("Loss of each validation text"));
  EXPECT_THAT(read_file(plain / "report.html"), Not(HasSubstr("Loss of each validation text")));
}

TEST_F(ValidationSetsTest, AreEvaluatedOnAsManyTokensAsTheFirst) {
  const RunData data = load_run_data(sets_config().data, std::nullopt);
  std::vector<std::pair<int64_t, int64_t>> asked;  // tokens of the text, and of them wanted
  std::vector<int64_t> all;
  const auto evaluate = [&](const TokenSource& source, int64_t max_tokens, const EvalProgress& progress) {
    asked.emplace_back(source.tokens(), max_tokens);
    EXPECT_TRUE(progress(300, 300));
    return EvalResult{.loss = static_cast<double>(asked.size()), .tokens = 300};
  };
  const RunEval eval = evaluate_run(data, 300, evaluate, [&](int64_t tokens, int64_t planned) {
    all.push_back(tokens);
    EXPECT_EQ(planned, 900);
    return true;
  });
  EXPECT_THAT(asked, ElementsAre(Pair(2000, 300), Pair(2000, 300), Pair(1500, 300)));
  EXPECT_THAT(all, ElementsAre(300, 600, 900));
  EXPECT_EQ(eval.result.loss, 1);
  EXPECT_EQ(eval.result.tokens, 300);
  EXPECT_EQ(eval.loss_of("capitals"), 3);
  EXPECT_EQ(eval.loss_of(""), 1);
  EXPECT_TRUE(std::isnan(eval.loss_of("other")));
}

TEST_F(ValidationSetsTest, AnyOfThemChoosesTheBestCheckpoint) {
  RunConfig c = sets_config();
  c.checkpoint.keeps_best = true;
  train(c, folder / "plain");
  c.eval.best_by = "capitals";
  train(c, folder / "run");
  const auto capitals = curve(folder / "run", "val_loss/capitals");
  const int64_t lowest = lowest_step(capitals), by_val = lowest_step(curve(folder / "run", "val_loss"));
  ASSERT_LT(lowest, by_val);
  EXPECT_EQ(best_checkpoint(folder / "plain/checkpoints")->step, by_val);
  EXPECT_EQ(best_checkpoint(folder / "run/checkpoints")->step, lowest);
  EXPECT_THAT(said, HasSubstr(fmt::format("best checkpoint: step {}, validation loss of capitals {:.4f}",
                                          lowest, capitals.at(lowest))));
  // A resumed run finds it again in the log.
  std::filesystem::remove(folder / "run/checkpoints/best");
  c.train.steps = 45;
  train(c, folder / "run", true);
  EXPECT_EQ(best_checkpoint(folder / "run/checkpoints")->step, lowest);
}

TEST_F(ValidationSetsTest, TheRunEndsWhenTheLossStaysHigh) {
  RunConfig c = sets_config();
  c.train.steps = 200;
  c.eval.best_by = "capitals";
  c.eval.patience = 3;
  const TrainOutcome outcome = train(c, folder / "run");
  const auto capitals = curve(folder / "run", "val_loss/capitals");
  const int64_t end = lowest_step(capitals) + 15;
  EXPECT_EQ(outcome.status, TrainOutcome::Status::kCompleted);
  EXPECT_EQ(outcome.steps, end);
  EXPECT_EQ(capitals.rbegin()->first, end);
  EXPECT_THAT(said,
              HasSubstr(fmt::format("the run ends after step {}: in 3 evaluations the loss of capitals was "
                                    "not below {:.4f} (eval.patience)",
                                    end, capitals.at(end - 15))));
  const auto json = nlohmann::json::parse(read_file(folder / "run/run.json"));
  EXPECT_EQ(json["status"], "completed");
  EXPECT_EQ(json["steps"], end);
  // Resumed, the run has nothing left to do, unless it may wait longer.
  EXPECT_EQ(train(c, folder / "run", true).steps, end);
  c.eval.patience = 5;
  EXPECT_EQ(train(c, folder / "run", true).steps, end + 10);
}

TEST_F(ValidationSetsTest, AnInterruptedRunEndsAtTheSameStep) {
  RunConfig c = sets_config();
  c.train.steps = 200;
  c.eval.best_by = "capitals";
  c.eval.patience = 3;
  const int64_t end = train(c, folder / "whole").steps;
  c.train.stop_at = end - 7;
  EXPECT_EQ(train(c, folder / "parts").status, TrainOutcome::Status::kStopped);
  c.train.stop_at = 0;
  EXPECT_EQ(train(c, folder / "parts", true).steps, end);
}

TEST_F(ValidationSetsTest, MistakesAreNamed) {
  const auto refusal = [&](const std::vector<std::string>& settings) {
    return usage_error([&] { built_config("tiny-llama", settings); });
  };
  const char* form = "data.val_sets must hold NAME=PATH, with a name of letters, digits";
  for (const char* bad : {"news.txt", "=news.txt", "a b=news.txt", "news="})
    EXPECT_THAT(refusal({fmt::format("data.val_sets=[\"{}\"]", bad)}), HasSubstr(form)) << bad;
  EXPECT_THAT(refusal({"data.val_sets=[\"a=1.txt\", \"a=2.txt\"]"}),
              HasSubstr("\"a\" is the name of two texts"));
  EXPECT_THAT(refusal({"eval.best_by=news"}),
              HasSubstr("no validation text is called \"news\"; name one in"));
  EXPECT_THAT(refusal({"data.val_sets=[\"code=1.txt\"]", "eval.best_by=news"}),
              HasSubstr("no validation text is called \"news\"; the names are code"));
  EXPECT_THAT(refusal({"eval.patience=2", "eval.every=0"}),
              HasSubstr("eval.patience counts the evaluations"));
  EXPECT_EQ(refusal({"data.val_sets=[\"code=1.txt\"]", "eval.best_by=code"}), "no error");
  EXPECT_EQ(refusal({"data.train=[\"a.txt\", \"b.txt\"]", "data.mix=[1, 1]", "eval.best_by=b.txt"}),
            "no error");
  RunConfig c = sets_config();
  c.data.val_sets = {"gone=" + (folder / "gone.txt").string()};
  EXPECT_THROW(train(c, folder / "gone"), Error);
}

}  // namespace
}  // namespace ingot
