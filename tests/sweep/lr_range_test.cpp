// Tests of the learning-rate range test: its configuration, its rule on known curves, and the command.
#include "ingot/sweep/lr_range.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <csignal>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "ingot/config/config_toml.h"
#include "ingot/config/run_plan.h"
#include "ingot/core/error.h"
#include "ingot/core/file.h"
#include "ingot/sweep/vary.h"
#include "tests/reference/error_of.h"
#include "tests/regress/run_program.h"

namespace ingot {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;

std::vector<double> rates_of(const LrRangeSpec& spec) {
  std::vector<double> rates;
  for (int64_t step = 1; step < spec.steps; ++step) rates.push_back(spec.rate(step));
  return rates;
}

// The loss falls from 4 to 3 around the rate 1e-3, is lowest at 1e-2, and rises with the square of the
// logarithm.
double known_loss(double rate) {
  const double x = std::log10(rate) + 2;  // 0 at 1e-2
  return x < 0 ? 3 + std::min(1.0, 0.5 * x * x) : 3 + 0.4 * x * x;
}

LrRange judge_known(double noise, uint64_t seed = 1) {
  std::mt19937_64 random(seed);
  std::normal_distribution<double> batch(0, noise);
  const std::vector<double> rates = rates_of({});
  std::vector<double> losses;
  for (const double rate : rates) losses.push_back(known_loss(rate) + (noise > 0 ? batch(random) : 0));
  return judge_lr_range(rates, losses);
}

TEST(LrRange, RatesGrowByAConstantFactor) {
  const LrRangeSpec spec{.from = 1e-4, .to = 1, .steps = 40};
  EXPECT_DOUBLE_EQ(spec.rate(1), 1e-4);
  EXPECT_NEAR(spec.rate(11) / 1e-3, 1, 1e-12);
  EXPECT_NEAR(spec.rate(41), 1, 1e-12);
}

TEST(LrRange, TheTrainersScheduleHasTheseRates) {
  ConfigBuilder builder;
  builder.add_source("tiny-llama");
  builder.add_override("train.steps=5000");
  builder.add_override("train.max_tokens=1M");
  builder.add_override("schedule.warmup_steps=100");
  const LrRangeSpec spec{.from = 1e-4, .to = 10, .steps = 50};
  const RunConfig config = lr_range_config(builder.build(), spec);
  ConfigBuilder written;  // what the command gives to `ingot train`
  written.add_toml(config_toml(config, ConfigDocs::kNone), "config.toml");
  const RunConfig& read = written.build();
  const RunPlan plan(read);
  EXPECT_EQ(plan.steps(), 50);
  const Schedule schedule(read.schedule, plan.length(), plan.ramp());
  for (int64_t step = 1; step <= 50; ++step) {
    const double rate = read.optimizer.lr * schedule.lr({.step = step - 1, .tokens = 0, .time_s = 0});
    EXPECT_NEAR(rate / spec.rate(step), 1, 1e-9) << step;
  }
}

TEST(LrRange, GroupsKeepTheirRatios) {
  RunConfig config;
  config.optimizer.lr = 2e-3;
  config.optimizer.groups.resize(2);
  config.optimizer.groups[0].lr = 2e-2;
  config.optimizer.groups[1].lr_scale = 0.5;
  const RunConfig test = lr_range_config(config, {.from = 1e-5, .to = 1, .steps = 100});
  EXPECT_DOUBLE_EQ(test.optimizer.lr, 1);
  EXPECT_DOUBLE_EQ(*test.optimizer.groups[0].lr, 10);
  EXPECT_DOUBLE_EQ(*test.optimizer.groups[1].lr_scale, 0.5);
}

TEST(LrRange, RefusesWhatIsNoTest) {
  const auto refusal = [](const LrRangeSpec& spec, const RunConfig& config = {}) -> std::string {
    return usage_error([&] { lr_range_config(config, spec); });
  };
  EXPECT_EQ(refusal({}), "no error");
  EXPECT_THAT(refusal({.from = 0, .to = 1, .steps = 100}), HasSubstr("--from must be a rate above 0"));
  EXPECT_THAT(refusal({.from = 1e-3, .to = 5e-3, .steps = 100}), HasSubstr("at least ten times --from"));
  EXPECT_THAT(refusal({.from = 1e-3, .to = HUGE_VAL, .steps = 100}), HasSubstr("--to"));
  EXPECT_THAT(refusal({.from = 1e-3, .to = 1, .steps = 5}), HasSubstr("--steps must lie in 20"));
  RunConfig ranks;
  ranks.parallel.dp = 2;
  EXPECT_THAT(refusal({}, ranks), HasSubstr("leave parallel out"));
  RunConfig still;
  still.optimizer.lr = 0;
  EXPECT_THAT(refusal({}, still), HasSubstr("optimizer.lr must be above 0"));
}

TEST(LrRange, FindsTheEndOfTheFallAndTheRise) {
  const LrRange exact = judge_known(0);
  EXPECT_NEAR(std::log10(exact.rates[exact.lowest]), -2, 0.06) << "within a step";
  ASSERT_TRUE(exact.interval && exact.rises_at && exact.knee);
  // A tenth of the fall of 1 is left where 0.5 x^2 = 0.1, and 3 % of it is back where 0.4 x^2 = 0.03.
  EXPECT_NEAR(std::log10(*exact.knee), -2 - std::sqrt(0.2), 0.06);
  EXPECT_NEAR(std::log10(*exact.rises_at), -2 + std::sqrt(0.075), 0.06);
  EXPECT_DOUBLE_EQ(exact.interval->low, *exact.knee / 4);
  EXPECT_DOUBLE_EQ(exact.interval->high, *exact.knee * 4);
  EXPECT_EQ(exact.problem, "");
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    const LrRange noisy = judge_known(0.1, seed);
    ASSERT_TRUE(noisy.interval) << noisy.problem;
    EXPECT_TRUE(noisy.interval->contains(*exact.knee)) << seed;
  }
}

// Models with norms may train on, slowly, at rates that are far too high; the lowest loss then lies there.
TEST(LrRange, ALaterAndLowerMinimumDoesNotCount) {
  const std::vector<double> rates = rates_of({});
  std::vector<double> losses;
  for (const double rate : rates) {
    const double x = std::log10(rate);
    losses.push_back(x < -1.2 ? known_loss(rate) : known_loss(std::pow(10, -1.2)) - 0.5 * (x + 1.2));
  }
  const LrRange range = judge_lr_range(rates, losses);
  ASSERT_TRUE(range.interval);
  EXPECT_LT(losses.back(), 2.8);
  EXPECT_NEAR(std::log10(range.rates[range.lowest]), -2, 0.06);
}

TEST(LrRange, ALossThatIsNotFiniteCountsAsARise) {
  const std::vector<double> rates = rates_of({});
  std::vector<double> losses;
  for (const double rate : rates)
    losses.push_back(rate < 0.1 ? 4 - 1e3 * std::min(rate, 1e-3) : std::nan(""));
  const LrRange range = judge_lr_range(rates, losses);
  ASSERT_TRUE(range.rises_at && range.interval);
  EXPECT_NEAR(*range.rises_at / 0.1, 1, 0.13);
  EXPECT_TRUE(std::isnan(range.smoothed.back()));
}

TEST(LrRange, AHugeLossDoesNotHideTheMinimumBesideIt) {
  const std::vector<double> rates = rates_of({});
  std::vector<double> losses;
  for (const double rate : rates) losses.push_back(rate > 0.0101 ? 1e9 : known_loss(rate));
  const LrRange range = judge_lr_range(rates, losses);
  ASSERT_TRUE(range.interval);
  EXPECT_NEAR(std::log10(range.rates[range.lowest]), -2, 0.25);
}

TEST(LrRange, SaysWhyThereIsNoInterval) {
  const std::vector<double> rates = rates_of({});
  std::vector<double> falling, flat;
  std::mt19937_64 random(1);
  std::normal_distribution<double> batch(0, 0.1);
  for (const double rate : rates) {
    falling.push_back(2 - std::log10(rate));
    flat.push_back(4 + batch(random));
  }
  EXPECT_THAT(judge_lr_range(rates, falling).problem, HasSubstr("did not rise after it; raise --to"));
  EXPECT_FALSE(judge_lr_range(rates, falling).interval);
  EXPECT_THAT(judge_lr_range(rates, flat).problem, HasSubstr("did not fall by more than its noise"));
  EXPECT_THAT(judge_lr_range(rates, std::vector<double>(rates.size(), HUGE_VAL)).problem,
              HasSubstr("lower --from"));
}

TEST(LrRange, TheSuggestedSweepIsOneThatTheSweepTakes) {
  const std::string words = lr_range_vary(judge_known(0));
  ASSERT_THAT(words, testing::StartsWith("--vary "));
  const Vary vary = parse_vary(words.substr(7));
  EXPECT_EQ(vary.key, "optimizer.lr");
  EXPECT_GE(vary.values.size(), 5u);
  EXPECT_TRUE(vary.is_log);
}

class LrRangeCommand : public ProgramInFolder {
 protected:
  std::vector<std::string> line(const std::string& out, const std::vector<std::string>& more = {}) const {
    std::vector<std::string> words = small_run(out, {});
    words[0] = "lr-range";
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
};

TEST_F(LrRangeCommand, FindsAnIntervalAndWritesItsFiles) {
  const Outcome ended = run(line("r", {"--to", "10"}));
  ASSERT_EQ(ended.exit_code, 0) << ended.output;
  EXPECT_THAT(ended.output, AllOf(HasSubstr("log10 of optimizer.lr"), HasSubstr("the loss has fallen at"),
                                  HasSubstr("ingot sweep tiny-llama --data"), HasSubstr("--seeds 2")));
  const json found = json::parse(read_file(path("r/lr-range.json")));
  EXPECT_EQ(found["points"].size(), 99u);
  EXPECT_LT(found["interval"][0].get<double>(), found["knee"].get<double>());
  EXPECT_GT(found["interval"][1].get<double>(), found["knee"].get<double>());
  EXPECT_THAT(ended.output, HasSubstr(found["vary"].get<std::string>()));
  EXPECT_GT(read_file(path("r/lr-range.svg")).size(), 1000u);
  EXPECT_FALSE(std::filesystem::exists(path("r/run/checkpoints")));
  // The first losses are those of `ingot train` at these rates: an untrained model's.
  EXPECT_NEAR(found["points"][0]["loss"].get<double>(), std::log(256), 0.5);

  const Outcome again = run(line("r", {"--to", "10", "--json"}));
  ASSERT_EQ(again.exit_code, 0) << again.output;
  EXPECT_EQ(read_file(path("r/lr-range.json")),
            found.dump(2).size() ? read_file(path("r/lr-range.json")) : "");
  EXPECT_THAT(again.output, HasSubstr("\"knee\""));
}

TEST_F(LrRangeCommand, ADivergingRunIsAResult) {
  const Outcome ended = run(line("r", {"--from", "1e-3", "--to", "1e12", "--set", "optimizer.kind=sgd",
                                       "--set", "optimizer.grad_clip=0"}));
  ASSERT_EQ(ended.exit_code, 0) << ended.output;
  const json found = json::parse(read_file(path("r/lr-range.json")));
  EXPECT_TRUE(found["points"].back()["loss"].is_null());
  EXPECT_FALSE(found["interval"].is_null());
}

TEST_F(LrRangeCommand, BadInputIsRefused) {
  const Outcome low = run(line("r", {"--to", "1e-4"}));
  EXPECT_EQ(low.exit_code, 2) << low.output;
  EXPECT_THAT(low.output, HasSubstr("did not rise after it; raise --to"));
  const Outcome range = run(line("s", {"--from", "1"}));
  EXPECT_EQ(range.exit_code, 2);
  EXPECT_THAT(range.output, HasSubstr("--to must be at least ten times --from"));
  EXPECT_FALSE(std::filesystem::exists(path("s")));
  make_folders(path("t/run"));
  write_file(path("t/run/precious"), "words");
  const Outcome other = run(line("t"));
  EXPECT_EQ(other.exit_code, 2);
  EXPECT_THAT(other.output, HasSubstr("t/run exists and is not a run"));
  EXPECT_EQ(read_file(path("t/run/precious")), "words");
  std::filesystem::remove(path("text.txt"));
  const Outcome text = run(line("u"));
  EXPECT_EQ(text.exit_code, 3) << text.output;
  EXPECT_THAT(text.output, HasSubstr("text.txt"));
}

TEST_F(LrRangeCommand, ASignalEndsIt) {
  const pid_t pid = start(line("r", {"--steps", "100000"}));
  ASSERT_TRUE(comes(path("r/run/metrics.jsonl")));
  kill(pid, SIGINT);
  const Outcome ended = wait(pid);
  EXPECT_EQ(ended.exit_code, 75) << ended.output;
  EXPECT_THAT(ended.output, HasSubstr("the same command begins again"));
}

}  // namespace
}  // namespace ingot
