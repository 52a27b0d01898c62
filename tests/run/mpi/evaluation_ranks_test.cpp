// On several ranks: every layout evaluates validation texts and tasks as one rank does, and all ranks end a
// run together.
#include <gmock/gmock.h>

#include "ingot/config/config_toml.h"
#include "ingot/console/console.h"
#include "ingot/formats/metrics_log.h"
#include "ingot/parallel/parallelize.h"
#include "ingot/run/record/run_folder.h"
#include "ingot/run/run.h"
#include "tests/comm/mpi/shared_folder.h"

namespace ingot {
namespace {

namespace fs = std::filesystem;

class EvaluationRanksTest : public testing::Test {
 protected:
  EvaluationRanksTest() {
    if (world->rank() == 0) {
      std::string text, capitals;
      for (int i = 0; i < 3000; ++i) text += i * i % 7 < 3 ? "the cat sat. " : "a dog ran. ";
      for (int i = 0; i < 1000; ++i) capitals += static_cast<char>('A' + i * i % 26);
      write_file(folder_ / "text.txt", text);
      write_file(folder_ / "capitals.txt", capitals);
      std::string words;
      for (const char* sentence : {"the cat sat.", "a dog ran.", "the dog sat.", "a cat."})
        words += fmt::format("{{\"text\": \"{}\"}}\n", sentence);
      write_file(folder_ / "words.jsonl", words);
      write_file(folder_ / "choice.jsonl",
                 "{\"query\": \"the cat\", \"choices\": [\"sat.\", \"ran.\"], \"gold\": 0}\n"
                 "{\"query\": \"a dog\", \"choices\": [\"sat.\", \"ran.\"], \"gold\": 1}\n");
    }
    world->barrier("text");
  }

  // Trains on these ranks and returns rank 0's lines of evaluations.
  std::vector<MetricsRow> evaluations(Communicator& ranks, const std::vector<std::string>& settings) {
    ConfigBuilder builder;
    builder.add_source("tiny-llama");
    builder.add_texts("data.train", {(folder_ / "text.txt").string()}, "--data");
    std::vector<std::string> all = {"data.tokenizer=byte", "model.layers=2",          "model.width=32",
                                    "model.heads=8",       "model.kv_heads=8",        "model.context=32",
                                    "train.batch_size=8",  "train.grad_accum=2",      "train.steps=60",
                                    "optimizer.lr=3e-3",   "schedule.warmup_steps=0", "eval.every=10",
                                    "eval.max_tokens=512", "eval.best_by=capitals",   "eval.patience=2",
                                    "sample.count=0",      "train.threads=1"};
    all.push_back(fmt::format("data.val_sets=[\"capitals={}\"]", (folder_ / "capitals.txt").string()));
    all.push_back(fmt::format("eval.tasks=[\"{}\", \"{}\"]", (folder_ / "words.jsonl").string(),
                              (folder_ / "choice.jsonl").string()));
    all.insert(all.end(), settings.begin(), settings.end());
    for (const std::string& setting : all) builder.add_override(setting);
    const RunConfig config = builder.build();
    const fs::path out = folder_ / fmt::format("run-{}", ++runs_) / fmt::format("of-{}", ranks.size());
    std::unique_ptr<RunFolder> run;
    if (ranks.rank() == 0) run = std::make_unique<RunFolder>(out, false);
    ranks.barrier("folder");
    if (ranks.rank() > 0) run = RunFolder::of_rank(out, ranks.rank());
    std::string said;
    Console console([&](std::string_view line) { said += line; }, 0);
    std::atomic<bool> is_interrupted = false;
    Mesh mesh = Mesh::make(ranks, mesh_shape(config.parallel));
    const TrainOutcome outcome =
        run_training(config, *run, false, console, is_interrupted, mesh, DataMismatch::kRefused);
    EXPECT_EQ(outcome.status, TrainOutcome::Status::kCompleted);
    EXPECT_LT(outcome.steps, 60) << "the run ends early";
    if (ranks.rank() != 0) return {};
    std::vector<MetricsRow> rows = read_metrics(out / "metrics.jsonl");
    std::erase_if(rows, [](const MetricsRow& row) { return !row.number("val_loss"); });
    return rows;
  }

  SharedFolder shared_;
  const fs::path folder_ = shared_.path;
  int runs_ = 0;
};

TEST_F(EvaluationRanksTest, EveryLayoutFindsWhatOneRankFinds) {
  const int ranks = world->size();
  if (ranks == 1) GTEST_SKIP() << "one rank is what the others are compared with";
  const std::string all = std::to_string(ranks), half = std::to_string(ranks / 2);
  std::vector<std::vector<std::string>> layouts = {{"parallel.dp=" + all},
                                                   {"parallel.fsdp=" + all},
                                                   {"parallel.dp=" + half, "parallel.tp=2"},
                                                   {"parallel.fsdp=" + half, "parallel.pp=2"}};
  const auto alone = self_communicator();
  std::vector<MetricsRow> expected;
  if (world->rank() == 0) expected = evaluations(*alone, {});
  for (const auto& layout : layouts) {
    SCOPED_TRACE(testing::PrintToString(layout));
    const std::vector<MetricsRow> rows = evaluations(*world, layout);
    if (world->rank() != 0) continue;
    ASSERT_EQ(rows.size(), expected.size());
    for (size_t i = 0; i < rows.size(); ++i)
      for (const char* key : {"step", "val_loss", "val_loss/capitals", "task/words/acc",
                              "task/words/perplexity", "task/choice/acc", "task/choice/centered"}) {
        ASSERT_TRUE(rows[i].number(key)) << key;
        EXPECT_NEAR(*rows[i].number(key), *expected[i].number(key), 2e-3 * std::abs(*expected[i].number(key)))
            << key << " of evaluation " << i;
      }
  }
}

}  // namespace
}  // namespace ingot

int main(int argc, char** argv) { return ingot::run_on_ranks(argc, argv); }
