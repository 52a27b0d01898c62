// Tasks that a run scores at its evaluations (eval.tasks).
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "ingot/formats/metrics_log.h"
#include "ingot/tasks/evaluate_tasks.h"
#include "tests/reference/error_of.h"
#include "tests/run/training_fixture.h"

namespace ingot {
namespace {

using testing::HasSubstr;
using testing::Not;

class RunTasksTest : public TrainingTest {
 protected:
  RunConfig tasks_config() {
    std::string words;
    for (const char* sentence :
         {"the cat sat", "a dog ran", "the mat sat", "a cat on", "dog ran the", "on a mat"})
      words += fmt::format("{{\"text\": \"{}\"}}\n", sentence);
    write_file(folder / "words.jsonl", words);
    write_file(folder / "choice.jsonl",
               "{\"goal\": \"the cat\", \"sol1\": \"sat on a mat\", \"sol2\": \"zzz\", \"label\": 0}\n"
               "{\"goal\": \"the dog\", \"sol1\": \"qqq\", \"sol2\": \"ran\", \"label\": 1}\n");
    RunConfig c = config(DType::f32);
    c.data.tokenizer = "byte";
    c.train.steps = 30;
    c.eval.every = 10;
    c.checkpoint.every = 10;
    c.checkpoint.keep = 10;
    c.eval.tasks = {(folder / "words.jsonl").string(), (folder / "choice.jsonl").string()};
    return c;
  }
  std::vector<MetricsRow> evaluations(const std::filesystem::path& run) {
    std::vector<MetricsRow> rows = read_metrics(run / "metrics.jsonl");
    std::erase_if(rows, [](const MetricsRow& row) { return !row.number("val_loss"); });
    return rows;
  }
};

TEST_F(RunTasksTest, AreScoredAsEvalScoresTheCheckpoint) {
  for (const double ema : {0.0, 0.5}) {
    const std::filesystem::path run = folder / fmt::format("run-{}", ema);
    RunConfig c = tasks_config();
    c.optimizer.ema = ema;
    train(c, run);
    const std::vector<MetricsRow> rows = evaluations(run);
    ASSERT_EQ(rows.size(), 3u);
    for (const MetricsRow& row : rows) {
      const auto step = static_cast<int64_t>(row.number("step").value());
      const TaskResults results =
          evaluate_tasks(run / fmt::format("checkpoints/step-{:09}", step),
                         {.files = c.eval.tasks, .shots = {}, .model = {.is_averaged = ema > 0}});
      ASSERT_EQ(results.tasks.size(), 2u);
      EXPECT_EQ(row.number("task/words/acc"), results.tasks[0].acc.value);
      EXPECT_NEAR(*row.number("task/words/perplexity"), *results.tasks[0].perplexity,
                  1e-4 * *results.tasks[0].perplexity);
      EXPECT_EQ(row.number("task/choice/acc"), results.tasks[1].acc.value);
      EXPECT_EQ(row.number("task/choice/acc_norm"), results.tasks[1].acc_norm->value);
    }
    EXPECT_LT(*rows[2].number("task/words/perplexity"), *rows[0].number("task/words/perplexity"));
  }
}

TEST_F(RunTasksTest, StandInTheRunsRecordsAndChangeNothingElse) {
  RunConfig c = tasks_config();
  train(c, folder / "run");
  EXPECT_THAT(said, HasSubstr("task step 30 | words | 6 questions | acc "));
  const auto json = nlohmann::json::parse(read_file(folder / "run/run.json"));
  EXPECT_EQ(json["tasks"]["choice"]["acc"], *evaluations(folder / "run").back().number("task/choice/acc"));
  EXPECT_TRUE(json["tasks"]["words"].contains("perplexity"));
  EXPECT_THAT(read_file(folder / "run/report.html"), HasSubstr("words/acc"));
  c.eval.tasks.clear();
  train(c, folder / "plain");
  EXPECT_FALSE(nlohmann::json::parse(read_file(folder / "plain/run.json")).contains("tasks"));
  const auto with = evaluations(folder / "run"), without = evaluations(folder / "plain");
  for (size_t i = 0; i < with.size(); ++i)
    EXPECT_EQ(with[i].number("val_loss"), without[i].number("val_loss"));
}

TEST_F(RunTasksTest, TheFirstQuestionsAreEnough) {
  RunConfig c = tasks_config();
  c.eval.task_questions = 2;
  c.train.steps = 10;
  train(c, folder / "run");
  EXPECT_THAT(said, HasSubstr("| words | 2 questions |"));
  EXPECT_THAT(said, Not(HasSubstr("6 questions")));
}

TEST_F(RunTasksTest, AFaultIsNamedBeforeTheFirstStep) {
  RunConfig c = tasks_config();
  write_file(folder / "choice.jsonl", "{\"goal\": \"the cat\"}\n");
  EXPECT_THAT(error_of([&] { train(c, folder / "run"); }), HasSubstr("choice.jsonl:1: "));
  EXPECT_THAT(said, Not(HasSubstr("step ")));
}

}  // namespace
}  // namespace ingot
