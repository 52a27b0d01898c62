// Tests of a sweep's verdict and of the files that hold it.
#include "ingot/sweep/sweep_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "ingot/core/file.h"
#include "ingot/sweep/result_json.h"
#include "ingot/sweep/sweep_report.h"
#include "tests/reference/error_of.h"
#include "tests/regress/run_program.h"

namespace ingot {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;

// A sweep of three learning rates, two norms and three seeds whose losses are known.
struct KnownSweep {
  SweepRecord record;
  std::vector<SweepRun> runs;
  std::vector<RunResult> results;

  KnownSweep() {
    record.spec.source = "tiny-llama";
    record.spec.data = {"text.txt"};
    record.spec.vary = {parse_vary("optimizer.lr=5e-4,2e-3,8e-3"),
                        parse_vary("model.norm=rmsnorm,layernorm")};
    record.spec.seeds = 3;
    record.base_hash = "0123456789abcdef";
    record.threads = 2;
    record.command = "ingot sweep tiny-llama --out s";
    runs = sweep_runs(record.spec);
    for (const SweepRun& run : runs) {
      const size_t seed = run.seed - runs[0].seed;
      const double rate = std::log2(run.config.optimizer.lr / 5e-4) / 2;  // 0, 1, 2
      const bool is_layernorm = run.values[1] == "layernorm";
      // The seeds move all settings together; layernorm is worse by 0.001, 0.003 and -0.001.
      const double norms[] = {0.001, 0.003, -0.001};
      RunResult result;
      result.status = "completed";
      result.steps = 8;
      result.tokens = 4096;
      result.val_loss = 3 + 0.1 * (rate - 1) * (rate - 1) + 0.2 * static_cast<double>(seed) +
                        (is_layernorm ? norms[seed] : 0);
      results.push_back(result);
    }
  }
  SweepResult judge() const { return judge_sweep(record.spec, runs, results); }
  // Returns the result of the run with these places of its values and seed.
  RunResult& at(size_t rate, size_t norm, size_t seed) { return results[seed * 6 + rate * 2 + norm]; }
};

using SweepFiles = ProgramInFolder;

TEST(SweepResult, TheBestSettingIsThatOfTheLowestMean) {
  const KnownSweep sweep;
  const SweepResult result = sweep.judge();
  ASSERT_TRUE(result.best);
  const SettingResult& best = result.settings[*result.best];
  EXPECT_THAT(best.values, ElementsAre("0.002", "rmsnorm"));
  EXPECT_NEAR(best.loss.mean, 3.2, 1e-12);
  // Student's t for 2 degrees of freedom is 4.3027; the deviation 0.2 / sqrt(3).
  ASSERT_TRUE(best.loss.interval);
  EXPECT_NEAR(best.loss.interval->high - best.loss.mean, 4.30265 * 0.2 / std::sqrt(3.0), 1e-5);
}

TEST(SweepResult, DifferencesArePairedBySeed) {
  const KnownSweep sweep;
  const SweepResult result = sweep.judge();
  // Setting 3 has the best rate with layernorm: its distance of 0.001 +- 0.005 is within the noise, though
  // that of its losses over the seeds would be a hundred times larger. The other rates lose 0.1 with every
  // seed.
  EXPECT_THAT(result.not_told_apart, ElementsAre(3));
  EXPECT_NEAR(result.settings[3].to_best.mean, 0.001, 1e-12);
  EXPECT_NEAR(result.settings[3].to_best.interval->high, 0.001 + 4.30265 * 0.002 / std::sqrt(3.0), 1e-6);
  EXPECT_NEAR(result.settings[0].to_best.mean, 0.1, 1e-12);
}

TEST(SweepResult, OnlyKeysWithThreeNumbersHaveAnOptimum) {
  const SweepResult result = KnownSweep().judge();
  ASSERT_EQ(result.optima.size(), 1u);
  EXPECT_EQ(result.optima[0].key, "optimizer.lr");
  EXPECT_NEAR(result.optima[0].value, 2e-3, 1e-9);
  EXPECT_THAT(optimum_text(result.optima[0]), HasSubstr("0.002, between 0.002 and 0.002 (95 %)"));
}

TEST(SweepResult, WhatDivergedFailedOrStoppedIsNeverTheBest) {
  for (const std::string status : {"diverged", "failed", "stopped", "interrupted", "pending"}) {
    KnownSweep sweep;
    sweep.at(1, 0, 2).status = status;
    const SweepResult result = sweep.judge();
    EXPECT_EQ(result.settings[2].status, status);
    EXPECT_FALSE(result.settings[2].has_loss());
    EXPECT_EQ(result.best, 3u) << "layernorm with the best rate follows";
  }
}

// Seen: a sweep of one seed began with "Optimum ..., by a parabola", and said only below that one seed means
// nothing.
TEST(SweepResult, OneSeedIsSaidBeforeAnyNumberIsReadFromIt) {
  KnownSweep sweep;
  EXPECT_THAT(sweep_markdown(sweep.record, sweep.runs, sweep.results),
              HasSubstr("Optimum of optimizer.lr: 0.002"));
  sweep.record.spec.seeds = 1;
  sweep.runs.resize(6);
  sweep.results.resize(6);
  const std::string text = sweep_markdown(sweep.record, sweep.runs, sweep.results);
  EXPECT_THAT(text, HasSubstr("with val loss 3.0000.\n- One seed: nothing says"));
  EXPECT_EQ(text.find("Optimum"), std::string::npos) << text;
}

TEST(SweepResult, WithoutAnyLossThereIsNoBest) {
  KnownSweep sweep;
  for (RunResult& result : sweep.results) result = RunResult{};
  EXPECT_FALSE(sweep.judge().best);
  EXPECT_THAT(sweep_markdown(sweep.record, sweep.runs, sweep.results),
              HasSubstr("No setting has a loss yet."));
  const json written = json::parse(sweep_json(sweep.record, sweep.runs, sweep.results));
  EXPECT_TRUE(written["best"].is_null());
  EXPECT_TRUE(written["runs"][0]["val_loss"].is_null());
}

TEST_F(SweepFiles, JsonHasTheNamesThatScriptsRelyOn) {
  const KnownSweep sweep;
  const json written = json::parse(sweep_json(sweep.record, sweep.runs, sweep.results));
  ASSERT_EQ(written["runs"].size(), 18u);
  const json& run = written["runs"][3];
  EXPECT_EQ(run["set"], (json{{"optimizer.lr", 0.002}, {"model.norm", "layernorm"}}));
  EXPECT_EQ(run["seed"], sweep.runs[3].seed);
  EXPECT_EQ(run["status"], "completed");
  EXPECT_EQ(run["val_loss"], *sweep.results[3].val_loss);
  EXPECT_EQ(run["tokens"], 4096);
  const json& best = written["best"];
  EXPECT_EQ(best["set"], (json{{"optimizer.lr", 0.002}, {"model.norm", "rmsnorm"}}));
  EXPECT_NEAR(best["val_loss"].get<double>(), 3.2, 1e-12);
  EXPECT_LT(best["interval"][0].get<double>(), 3.2);
  EXPECT_GT(best["interval"][1].get<double>(), 3.2);
}

TEST_F(SweepFiles, TablesAndPicturesHoldEverySetting) {
  const KnownSweep sweep;
  write_sweep_files(folder_, sweep.record, sweep.runs, sweep.results);
  const std::string csv = read_file(folder_ / "table.csv");
  EXPECT_THAT(csv, HasSubstr("optimizer.lr,model.norm,seed,status,steps,tokens,val_loss\n"));
  EXPECT_EQ(std::count(csv.begin(), csv.end(), '\n'), 19);
  const std::string table = read_file(folder_ / "table.md");
  EXPECT_THAT(table, HasSubstr("| 0.002 | rmsnorm | 3 | 3.2000 ± 0.4968 | best | completed |"));
  EXPECT_THAT(table, HasSubstr("| +0.0010 ± 0.0050, not told apart | completed |"));
  EXPECT_THAT(table, HasSubstr("- One other setting is not told apart from it."));
  EXPECT_THAT(read_file(folder_ / "optimizer.lr.svg"), HasSubstr("model.norm=layernorm"));
  EXPECT_THAT(read_file(folder_ / "model.norm.svg"), HasSubstr("optimizer.lr=0.008"));
  const std::string report = read_file(folder_ / "report.html");
  for (const SweepRun& run : sweep.runs) EXPECT_THAT(report, HasSubstr(run.name));
}

TEST_F(SweepFiles, CellsAreQuoted) {
  KnownSweep sweep;
  sweep.record.spec.vary[1].values[0] = "a,\"b\"|c";
  for (SweepRun& run : sweep.runs)
    if (run.values[1] == "rmsnorm") run.values[1] = "a,\"b\"|c";
  write_sweep_files(folder_, sweep.record, sweep.runs, sweep.results);
  EXPECT_THAT(read_file(folder_ / "table.csv"), HasSubstr("0.0005,\"a,\"\"b\"\"|c\","));
  EXPECT_THAT(read_file(folder_ / "table.md"), HasSubstr("| a,\"b\"\\|c |"));
}

TEST_F(SweepFiles, TheRecordIsReadAgain) {
  EXPECT_FALSE(read_sweep_record(folder_));
  KnownSweep sweep;
  sweep.record.halving_eta = 3;
  write_sweep_files(folder_, sweep.record, sweep.runs, sweep.results);
  const std::optional<SweepRecord> read = read_sweep_record(folder_);
  ASSERT_TRUE(read);
  EXPECT_EQ(read->base_hash, sweep.record.base_hash);
  EXPECT_EQ(read->threads, 2);
  EXPECT_EQ(read->halving_eta, 3);
  EXPECT_EQ(read->command, sweep.record.command);
  EXPECT_EQ(read->spec.seeds, 3);
  ASSERT_EQ(read->spec.vary.size(), 2u);
  EXPECT_EQ(read->spec.vary[0].values, sweep.record.spec.vary[0].values);
}

TEST_F(SweepFiles, ADamagedRecordIsRefusedByName) {
  const KnownSweep sweep;
  const std::string whole = sweep_json(sweep.record, sweep.runs, sweep.results);
  json without = json::parse(whole);
  without.erase("threads");
  for (const std::string& text : {whole.substr(0, whole.size() / 2), std::string("[]"), without.dump()}) {
    write_file(folder_ / "sweep.json", text);
    EXPECT_THAT(data_error([&] { read_sweep_record(folder_); }),
                HasSubstr((folder_ / "sweep.json").string()));
  }
}

TEST(SweepPlots, OneForEveryKeyWithItsBars) {
  const KnownSweep sweep;
  const std::vector<LinePlot> plots = sweep_plots(sweep.record.spec, sweep.judge());
  ASSERT_EQ(plots.size(), 2u);
  ASSERT_EQ(plots[0].series.size(), 2u);
  const PlotSeries& best = plots[0].series[0];
  EXPECT_EQ(best.name, "model.norm=rmsnorm");
  EXPECT_THAT(best.x, ElementsAre(0.0005, 0.002, 0.008));
  EXPECT_THAT(best.y, ElementsAre(testing::DoubleNear(3.3, 1e-9), testing::DoubleNear(3.2, 1e-9),
                                  testing::DoubleNear(3.3, 1e-9)));
  for (size_t i = 0; i < 3; ++i) EXPECT_NEAR((best.low[i] + best.high[i]) / 2, best.y[i], 1e-9);
  EXPECT_THAT(plots[1].x_names, ElementsAre("rmsnorm", "layernorm"));
  EXPECT_EQ(plots[1].series.size(), 3u);
}

}  // namespace
}  // namespace ingot
