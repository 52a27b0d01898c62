// Tests of comparisons between runs: groups, intervals, what differs, and what is not compared.
#include "ingot/sweep/comparison.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "ingot/sweep/comparison_report.h"
#include "ingot/sweep/result_json.h"

namespace ingot {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::UnorderedElementsAre;

constexpr int kSteps = 500;

// A run whose loss at step s is 2 + offset + 100 / (s + 50) and the noise of its batches, which equal seeds
// share.
ComparedRun made_run(const std::string& rate, uint64_t seed, double offset, int steps = kSteps) {
  ComparedRun run;
  run.name = "runs/" + rate + "-" + std::to_string(seed);
  run.status = "completed";
  run.seed = seed;
  run.steps = steps;
  run.tokens = steps * 100;
  run.tokenizer_hash = "aa";
  run.val_hash = "bb";
  run.settings = {{"optimizer.lr", rate}, {"model.width", "64"}};
  std::mt19937_64 random(seed);
  std::normal_distribution<double> batch(0, 0.3);
  for (int s = 1; s <= steps; ++s) {
    run.train.x.push_back(s * 100.0);
    run.train.y.push_back(2 + offset + 100.0 / (s + 50) + batch(random));
  }
  run.val_loss = 2.2 + offset + 0.05 * std::sin(static_cast<double>(seed));
  run.val_bits_per_byte = *run.val_loss / 2;
  run.validation = {{steps * 100.0}, {*run.val_loss}};
  return run;
}

const LossDifference& difference_of(const Comparison& comparison, const std::string& quantity,
                                    size_t group = 1) {
  for (const LossDifference& d : comparison.differences)
    if (d.quantity == quantity && d.group == group) return d;
  throw std::runtime_error("there is no difference of " + quantity);
}

TEST(Comparison, RunsThatDifferOnlyInTheSeedFormAGroup) {
  const Comparison comparison = compare_runs(
      {made_run("0.001", 1, 0), made_run("0.002", 1, 0), made_run("0.001", 2, 0), made_run("0.002", 2, 0)});
  ASSERT_EQ(comparison.groups.size(), 2u);
  EXPECT_THAT(comparison.groups[0].runs, ElementsAre(0, 2));
  EXPECT_THAT(comparison.groups[1].runs, ElementsAre(1, 3));
  EXPECT_EQ(comparison.groups[1].name, "optimizer.lr=0.002");
  ASSERT_EQ(comparison.settings.size(), 1u);
  EXPECT_EQ(comparison.settings[0].key, "optimizer.lr");
  EXPECT_THAT(comparison.settings[0].values, ElementsAre("0.001", "0.002"));
}

TEST(Comparison, NamedLossesAndAccuraciesAreCompared) {
  std::vector<ComparedRun> runs;
  for (const uint64_t seed : {1, 2, 3})
    for (const char* rate : {"0.001", "0.002"}) {
      runs.push_back(made_run(rate, seed, 0));
      const double more = rate == std::string("0.002") ? 0.25 : 0, noise = 0.001 * static_cast<double>(seed);
      runs.back().figures = {{"arc acc", 0.5 + more + noise * more}, {"code val loss", 3 - more}};
    }
  runs[0].figures["only here acc"] = 1;
  Comparison comparison = compare_runs(runs);
  EXPECT_NEAR(difference_of(comparison, "arc acc").value.mean, 0.2505, 1e-9);
  EXPECT_EQ(difference_of(comparison, "arc acc").verdict(), "higher");
  EXPECT_NEAR(difference_of(comparison, "code val loss").value.mean, -0.25, 1e-9);
  EXPECT_ANY_THROW(difference_of(comparison, "only here acc"));
  const std::string text = comparison_text(comparison);
  EXPECT_THAT(text, HasSubstr("code val loss"));
  EXPECT_THAT(text, HasSubstr("0.7502"));
  EXPECT_THAT(comparison_json(comparison), HasSubstr("\"figures\": {\n        \"arc acc\": 0.5"));
  for (ComparedRun& run : runs) run.tokenizer_hash = run.settings["optimizer.lr"];
  comparison = compare_runs(runs);
  EXPECT_NO_THROW(difference_of(comparison, "arc acc"));
  EXPECT_ANY_THROW(difference_of(comparison, "code val loss")) << "losses per token of other tokens";
}

TEST(Comparison, RepetitionsOfOneSeedStandForThemselves) {
  ComparedRun again = made_run("0.001", 1, 0);
  again.name = "runs/again";
  again.commit = "0123";
  ComparedRun first = made_run("0.001", 1, 0);
  first.commit = "4567";
  const Comparison comparison = compare_runs({first, again});
  ASSERT_EQ(comparison.groups.size(), 2u);
  EXPECT_EQ(comparison.groups[1].name, "runs/again");
  EXPECT_THAT(comparison.settings, IsEmpty());
  EXPECT_THAT(comparison.remarks, testing::Contains(HasSubstr("different versions of the program")));
  EXPECT_EQ(difference_of(comparison, "train_loss").value.mean, 0);
  EXPECT_THAT(comparison_text(comparison), HasSubstr("the configurations are the same"));
}

TEST(Comparison, SeedsArePaired) {
  std::vector<ComparedRun> runs;
  for (const uint64_t seed : {1, 2, 3}) runs.push_back(made_run("0.001", seed, 0));
  // The losses over the seeds spread by 0.05, the differences by 0.001.
  const double differences[] = {0.010, 0.011, 0.012};
  for (const uint64_t seed : {1, 2, 3}) runs.push_back(made_run("0.002", seed, differences[seed - 1]));
  const Comparison comparison = compare_runs(std::move(runs));
  const LossDifference& d = difference_of(comparison, "val_loss");
  EXPECT_NEAR(d.value.mean, 0.011, 1e-12);
  EXPECT_NEAR(d.value.interval->high - 0.011, 4.302653 * 0.001 / std::sqrt(3.0), 1e-8);
  EXPECT_EQ(d.verdict(), "higher");
  EXPECT_THAT(d.method, HasSubstr("paired over 3 seeds"));
  EXPECT_EQ(difference_of(comparison, "train_loss").verdict(), "higher");
}

TEST(Comparison, OtherSeedsAreComparedByWelch) {
  // scipy.stats.ttest_ind([2.30, 2.36, 2.33], [2.21, 2.25], equal_var=False): t = 3.7796, 2.3946 degrees of
  // freedom. The interval is rounded to 2 whole degrees of freedom.
  std::vector<ComparedRun> runs;
  const double first[] = {2.21, 2.25}, second[] = {2.30, 2.36, 2.33};
  for (const uint64_t seed : {1, 2}) {
    runs.push_back(made_run("0.001", seed, 0));
    runs.back().val_loss = first[seed - 1];
  }
  for (const uint64_t seed : {7, 8, 9}) {
    runs.push_back(made_run("0.002", seed, 0));
    runs.back().val_loss = second[seed - 7];
  }
  const LossDifference d = difference_of(compare_runs(std::move(runs)), "val_loss");
  EXPECT_NEAR(d.value.mean, 0.1, 1e-12);
  const double standard_error = std::sqrt(0.0009 / 3 + 0.0008 / 2);
  EXPECT_NEAR(d.value.interval->high - 0.1, 4.302653 * standard_error, 1e-7);
  EXPECT_THAT(d.method, HasSubstr("3 seeds against 2 others"));
}

TEST(Comparison, OneSeedGivesTheBatchesNoiseOnly) {
  const Comparison comparison = compare_runs({made_run("0.001", 1, 0), made_run("0.002", 1, 0.05)});
  EXPECT_FALSE(difference_of(comparison, "val_loss").value.interval);
  EXPECT_EQ(difference_of(comparison, "val_loss").verdict(), "");
  const LossDifference& train = difference_of(comparison, "train_loss");
  EXPECT_NEAR(train.value.mean, 0.05, 1e-9) << "equal seeds have equal batches, whose noise cancels";
  EXPECT_EQ(train.verdict(), "higher");
  EXPECT_THAT(train.method, HasSubstr("not between seeds"));
}

// About one in twenty of these 400 pairs is distinguished, although the runs of a pair differ only by noise.
TEST(Comparison, TheNullArmIsToldApartOneTimeInTwenty) {
  int told_apart = 0;
  for (uint64_t pair = 0; pair < 400; ++pair) {
    const auto value =
        curve_difference(made_run("0.001", 2 * pair, 0).train, made_run("0.001", 2 * pair + 1, 0).train);
    ASSERT_TRUE(value && value->interval);
    told_apart += !value->interval->contains(0);
  }
  EXPECT_GT(told_apart, 7);  // 20 expected; the binomial's deviation is 4.4
  EXPECT_LT(told_apart, 38);
}

TEST(Comparison, CurvesOfOtherStepsAreComparedAtEqualTokens) {
  MetricsCurve fine, coarse;
  for (int i = 1; i <= 1000; ++i) {
    fine.x.push_back(i * 10.0);
    fine.y.push_back(3 - i * 1e-3);
  }
  for (int i = 1; i <= 50; ++i) {  // half as many tokens, 100 of them a step
    coarse.x.push_back(i * 100.0);
    coarse.y.push_back(3 - i * 1e-2 + 0.25);
  }
  const auto value = curve_difference(fine, coarse);
  ASSERT_TRUE(value);
  EXPECT_NEAR(value->mean, 0.25, 0.006) << "a step's loss stands at its end";
  EXPECT_TRUE(value->interval->contains(value->mean));
  EXPECT_FALSE(curve_difference(fine, MetricsCurve{}));
  EXPECT_FALSE(curve_difference(fine, {{10}, {3}}));
}

TEST(Comparison, OtherTextsAndTokenizersAreNotMixed) {
  ComparedRun data_mismatch = made_run("0.002", 1, 0);
  data_mismatch.val_hash = "cc";
  const Comparison texts = compare_runs({made_run("0.001", 1, 0), data_mismatch});
  EXPECT_THROW(difference_of(texts, "val_loss"), std::runtime_error);
  EXPECT_THAT(texts.remarks, testing::Contains(HasSubstr("validated on another text")));
  EXPECT_NO_THROW(difference_of(texts, "train_loss"));

  ComparedRun other_tokens = made_run("0.002", 1, 0);
  other_tokens.tokenizer_hash = "dd";
  const Comparison tokenizers = compare_runs({made_run("0.001", 1, 0), other_tokens});
  EXPECT_NO_THROW(difference_of(tokenizers, "val_bits_per_byte"));
  EXPECT_THROW(difference_of(tokenizers, "val_loss"), std::runtime_error);
  EXPECT_THROW(difference_of(tokenizers, "train_loss"), std::runtime_error);
}

TEST(Comparison, UnfinishedRunsAndOtherLengthsAreSaid) {
  ComparedRun running = made_run("0.002", 1, 0, 200);
  running.status = "running";
  const Comparison comparison = compare_runs({made_run("0.001", 1, 0), running});
  EXPECT_THAT(comparison.remarks, UnorderedElementsAre(HasSubstr("runs/0.002-1 is running after step 200"),
                                                       HasSubstr("different numbers")));
  EXPECT_THAT(difference_of(comparison, "train_loss").method, HasSubstr("the last fifth of 20.0k tokens"));
}

TEST(Comparison, JsonHasEveryPart) {
  ComparedRun nothing = made_run("0.004", 1, 0, 0);
  nothing.val_loss = nothing.val_bits_per_byte = std::nullopt;
  const auto json = nlohmann::json::parse(
      comparison_json(compare_runs({made_run("0.001", 1, 0), made_run("0.002", 1, 0.1), nothing})));
  EXPECT_EQ(json["runs"].size(), 3u);
  EXPECT_EQ(json["runs"][1]["group"], 1);
  EXPECT_TRUE(json["runs"][2]["val_loss"].is_null());
  EXPECT_EQ(json["groups"][1]["name"], "optimizer.lr=0.002");
  EXPECT_EQ(json["settings"][0]["values"], (nlohmann::json{"0.001", "0.002", "0.004"}));
  const auto& train = json["differences"][1];
  EXPECT_EQ(train["quantity"], "train_loss");
  EXPECT_EQ(train["verdict"], "higher");
  EXPECT_LT(train["interval"][0].get<double>(), train["mean"].get<double>());
}

TEST(ComparedRun, SettingsAreReadByTheirSections) {
  const auto settings = settings_of(
      "preset = \"demo\"\n[model]\nwidth = 64\n\n[optimizer]\nlr = 0.001\n\n"
      "[[optimizer.group]]\nlr = 0.01\n\n[[optimizer.group]]\nlr = 0.02\n");
  EXPECT_EQ(settings, (std::map<std::string, std::string>{{"model.width", "64"},
                                                          {"optimizer.lr", "0.001"},
                                                          {"optimizer.group 1.lr", "0.01"},
                                                          {"optimizer.group 2.lr", "0.02"}}));
}

}  // namespace
}  // namespace ingot
