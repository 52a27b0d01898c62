// On several ranks: DPO has the losses and rewards of one rank in every layout, and resumes with its
// reference; and the gradient noise scale has a value.
#include <gtest/gtest.h>

#include "ingot/config/config_toml.h"
#include "ingot/console/console.h"
#include "ingot/formats/metrics_log.h"
#include "ingot/parallel/parallelize.h"
#include "ingot/run/record/run_folder.h"
#include "ingot/run/run.h"
#include "tests/comm/mpi/ranks_main.h"

namespace ingot {
namespace {

namespace fs = std::filesystem;

class DpoRanksTest : public testing::Test {
 protected:
  DpoRanksTest() {
    std::string name = (fs::temp_directory_path() / fmt::format("ingot_dpo_{}", getpid())).string();
    world->broadcast_text(name, 0);
    folder_ = name;
    if (world->rank() == 0) {
      fs::remove_all(folder_);
      make_folders(folder_);
      std::string pairs, text;
      for (int i = 0; i < 36; ++i)
        pairs +=
            fmt::format("{{\"prompt\": \"{} + {} is\", \"chosen\": \" {}.\", \"rejected\": \" a {}\"}}\n",
                        i % 7, i % 5, i % 7 + i % 5, i % 3);
      for (int i = 0; i < 3000; ++i) text += i * i % 7 < 3 ? "the cat sat. " : "a dog ran. ";
      write_file(folder_ / "pairs.jsonl", pairs);
      write_file(folder_ / "text.txt", text);
    }
    world->barrier("pairs");
  }
  ~DpoRanksTest() override {
    world->barrier("end");
    if (world->rank() == 0) fs::remove_all(folder_);
  }

  // Trains on these ranks and returns rank 0's lines of its steps.
  std::vector<MetricsRow> metrics(Communicator& ranks, const std::vector<std::string>& settings,
                                  const fs::path& out, bool is_resume = false) {
    ConfigBuilder builder;
    builder.add_source("tiny-llama");
    std::vector<std::string> all = {"data.tokenizer=byte", "model.layers=2",    "model.width=32",
                                    "model.heads=8",       "model.kv_heads=8",  "model.context=64",
                                    "train.batch_size=8",  "optimizer.lr=3e-3", "schedule.warmup_steps=0",
                                    "eval.every=4",        "eval.max_tokens=0", "sample.count=0",
                                    "checkpoint.every=2",  "train.threads=1"};
    all.insert(all.end(), settings.begin(), settings.end());
    for (const std::string& setting : all) builder.add_override(setting);
    const RunConfig config = builder.build();
    std::unique_ptr<RunFolder> run;
    if (ranks.rank() == 0) run = std::make_unique<RunFolder>(out, is_resume);
    ranks.barrier("folder");
    if (ranks.rank() > 0) run = RunFolder::of_rank(out, ranks.rank());
    Console console([](std::string_view) {}, 0);
    std::atomic<bool> is_interrupted = false;
    Mesh mesh = Mesh::make(ranks, mesh_shape(config.parallel));
    run_training(config, *run, is_resume, console, is_interrupted, mesh, DataMismatch::kRefused);
    if (ranks.rank() != 0) return {};
    std::vector<MetricsRow> rows = read_metrics(out / "metrics.jsonl");
    std::erase_if(rows, [](const MetricsRow& row) { return !row.number("loss"); });
    return rows;
  }
  void expect_same(const std::vector<MetricsRow>& rows, const std::vector<MetricsRow>& expected,
                   const std::vector<const char*>& keys, double tolerance) {
    size_t compared = 0;
    ASSERT_EQ(rows.size(), expected.size());
    for (size_t i = 0; i < rows.size(); ++i)
      for (const char* key : keys) {
        if (!expected[i].number(key)) continue;
        ASSERT_TRUE(rows[i].number(key)) << key;
        EXPECT_NEAR(*rows[i].number(key), *expected[i].number(key),
                    tolerance * (0.1 + std::abs(*expected[i].number(key))))
            << key << " of line " << i;
        ++compared;
      }
    EXPECT_GE(compared, 4 * keys.size());
  }

  fs::path folder_;
};

TEST_F(DpoRanksTest, EveryLayoutHasTheLossesOfOneRank) {
  if (world->size() == 1) GTEST_SKIP() << "one rank is what the others are compared with";
  const std::string all = std::to_string(world->size());
  std::vector<std::string> keys = {"dpo.beta=0.5", "data.document_mask=true", "data.order=epochs",
                                   "train.steps=8", "train.grad_accum=1"};
  keys.push_back(fmt::format("data.train=[\"{}\"]", (folder_ / "pairs.jsonl").string()));
  const auto alone = self_communicator();
  std::vector<MetricsRow> expected;
  if (world->rank() == 0) expected = metrics(*alone, keys, folder_ / "alone");
  for (const std::string& layout : {"parallel.dp=" + all, "parallel.fsdp=" + all, "parallel.tp=" + all}) {
    SCOPED_TRACE(layout);
    std::vector<std::string> own = keys;
    own.push_back(layout);
    own.emplace_back("train.stop_at=5");
    metrics(*world, own, folder_ / layout);
    own.pop_back();
    const std::vector<MetricsRow> rows = metrics(*world, own, folder_ / layout, true);
    if (world->rank() == 0)
      expect_same(rows, expected, {"loss", "rewards/margins", "rewards/chosen", "grad_norm"}, 2e-3);
  }
}

TEST_F(DpoRanksTest, TheNoiseScaleHasAValue) {
  const int ranks = world->size();
  if (ranks == 1 || ranks > 4) GTEST_SKIP() << "each rank has two micro-batches of a step of eight";
  std::vector<std::string> keys = {"train.noise_scale=true", "train.steps=6", "train.batch_size=1",
                                   "train.grad_accum=8"};
  keys.push_back(fmt::format("data.train=[\"{}\"]", (folder_ / "text.txt").string()));
  const std::vector<MetricsRow> rows = [&] {
    std::vector<std::string> own = keys;
    own.push_back(fmt::format("parallel.dp={}", ranks));
    return metrics(*world, own, folder_ / "noise");
  }();
  if (world->rank() != 0) return;
  size_t found = 0;
  for (const MetricsRow& row : rows)
    if (const auto noise = row.number("noise_scale")) {
      EXPECT_GT(*noise, 0);
      EXPECT_LT(*noise, 1e5);
      ++found;
    }
  EXPECT_GE(found, 3u);
}

}  // namespace
}  // namespace ingot

int main(int argc, char** argv) { return ingot::run_on_ranks(argc, argv); }
