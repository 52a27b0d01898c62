// Fixture with a small text, a small model, and runs in a folder that is removed after the test.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "ingot/console/console.h"
#include "ingot/core/file.h"
#include "ingot/core/philox.h"
#include "ingot/formats/metrics_log.h"
#include "ingot/run/record/run_folder.h"
#include "ingot/run/run.h"
#include "tests/reference/temporary_folder.h"

namespace ingot {

class TrainingTest : public ::testing::Test {
 protected:
  TemporaryFolder temporary;
  std::filesystem::path folder = temporary.path();
  std::filesystem::path text = folder / "text.txt";

  void SetUp() override {
    std::string words;
    const RandomKey key{.seed = 7, .purpose = Purpose::kSample, .stream = 0, .step = 0};
    const char* vocabulary[] = {"the ", "cat ", "sat ", "on ", "a ", "mat.\n", "dog ", "ran "};
    for (uint64_t i = 0; i < 4000; ++i) words += vocabulary[random_word(key, i) % 8];
    write_file(text, words);
  }

  RunConfig config(DType compute) const {
    RunConfig c;
    c.model = {.layers = 2, .heads = 4, .kv_heads = 2, .width = 32, .context = 24, .dropout = 0.1};
    c.data.train = {text.string()};
    c.data.tokenizer = "bpe";
    c.data.tokenizer_vocab = 300;
    c.train.steps = 60;
    c.train.batch_size = 3;
    c.train.grad_accum = 2;
    c.schedule.warmup_steps = 5;
    c.precision.compute = compute;
    c.eval.every = 25;
    c.checkpoint.every = 15;
    c.checkpoint.keeps_best = false;  // only checkpoint.every decides when to save
    c.sample.count = 0;
    return c;
  }

  // A run of 40 steps of micro-batches of 72 tokens: 7 steps of one micro-batch, 11 of two, and then
  // steps of three.
  RunConfig ramped() const {
    RunConfig c = config(DType::f32);
    c.train.steps = 40;
    c.train.grad_accum = 3;
    c.train.batch_ramp = {{.micro_batches = 1, .until_tokens = 500},
                          {.micro_batches = 2, .until_tokens = 2000}};
    c.checkpoint.every = 0;
    c.eval.every = 0;
    return c;
  }

  TrainOutcome train(const RunConfig& config, const std::filesystem::path& out, bool is_resume = false,
                     DataMismatch data_mismatch = DataMismatch::kRefused) {
    RunFolder run(out, is_resume);
    const auto sink = [this](std::string_view line) {
      said += line;
      if (on_line) on_line(line);
    };
    Console console(sink, 0);
    std::atomic<bool> is_interrupted = false;
    Mesh alone = Mesh::alone();
    return run_training(config, run, is_resume, console, is_interrupted, alone, data_mismatch);
  }
  std::string said;                               // console output of all runs
  std::function<void(std::string_view)> on_line;  // called with each line that a run prints

  // The lines of steps in a run's metrics.jsonl.
  static std::vector<MetricsRow> steps_of(const std::filesystem::path& run) {
    std::vector<MetricsRow> rows = read_metrics(run / "metrics.jsonl");
    std::erase_if(rows, [](const MetricsRow& row) { return !row.number("loss"); });
    return rows;
  }
  static std::map<std::string, std::string> contents(const std::filesystem::path& checkpoint) {
    std::map<std::string, std::string> files;
    for (const auto& entry : std::filesystem::directory_iterator(checkpoint))
      files[entry.path().filename().string()] = read_file(entry.path());
    return files;
  }
  static void expect_equal_files(const std::filesystem::path& a, const std::filesystem::path& b) {
    const auto left = contents(a), right = contents(b);
    ASSERT_GE(left.size(), 8u);
    for (const auto& [name, bytes] : left) {
      ASSERT_TRUE(right.contains(name)) << name;
      EXPECT_TRUE(bytes == right.at(name)) << name << " differs";
    }
    EXPECT_EQ(left.size(), right.size());
  }
};

}  // namespace ingot
