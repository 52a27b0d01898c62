// Tests schedules against those of torch and transformers (golden files), against other projects' formulas
// written out here, and as functions: bounds, continuity, extension.
#include "ingot/optim/schedule.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <map>
#include <sstream>
#include <string>

#include "ingot/core/error.h"
#include "tests/reference/error_of.h"

namespace ingot {
namespace {

const BatchRamp kNoRamp({}, 1, 1);

RunLength steps(int64_t n) { return {RunUnit::kSteps, static_cast<double>(n)}; }
RunPosition at_step(int64_t step) { return {.step = step, .tokens = step, .time_s = 0, .step_tokens = 1}; }

// Returns the multipliers of a run of n steps.
std::vector<double> values(const ScheduleConfig& config, int64_t n) {
  const Schedule schedule(config, steps(n), kNoRamp);
  std::vector<double> all;
  for (int64_t s = 0; s < n; ++s) all.push_back(schedule.lr(at_step(s)));
  return all;
}

Phase phase(double percent, Curve curve, double to = 0) {
  return {.kind = Phase::Length::kPercent, .length = percent, .curve = curve, .to = to};
}

// The tolerance for a few roundings in double precision of numbers up to 1.
constexpr double kRounding = 1e-12;

ScheduleConfig wsd(Curve curve, double floor, int64_t cooldown_steps, int64_t warmup_steps = 0) {
  ScheduleConfig c;
  c.kind = ScheduleKind::kWsd;
  c.warmup_steps = warmup_steps;
  c.warmup_rule = WarmupRule::kFromZero;
  c.floor = floor;
  c.cooldown_steps = cooldown_steps;
  c.cooldown_curve = curve;
  return c;
}

ScheduleConfig shape(ScheduleKind kind, double floor, int64_t warmup_steps) {
  ScheduleConfig c;
  c.kind = kind;
  c.warmup_steps = warmup_steps;
  c.warmup_rule = WarmupRule::kFromZero;
  c.floor = floor;
  return c;
}

TEST(Schedule, MatchesTorchAndTransformers) {
  const std::map<std::string, ScheduleConfig> twins = {
      {"hf_constant", shape(ScheduleKind::kConstant, 0, 10)},
      {"hf_linear", shape(ScheduleKind::kLinear, 0, 10)},
      {"hf_cosine", shape(ScheduleKind::kCosine, 0, 10)},
      {"hf_cosine_min", shape(ScheduleKind::kCosine, 0.1, 10)},
      {"hf_wsd_linear", wsd(Curve::kLinear, 0, 15, 10)},
      {"hf_wsd_linear_floor", wsd(Curve::kLinear, 0.1, 15)},
      {"hf_wsd_cosine", wsd(Curve::kCosine, 0, 15, 10)},
      {"hf_wsd_1-sqrt", wsd(Curve::kOneMinusSqrt, 0, 15, 10)},
      {"hf_wsd_1-sqrt_floor", wsd(Curve::kOneMinusSqrt, 0.2, 15)},
      {"torch_cosine", shape(ScheduleKind::kCosine, 0.1, 0)},
      {"torch_linear", shape(ScheduleKind::kLinear, 0.1, 0)},
      {"torch_exponential_wsd", wsd(Curve::kExponential, 0.05, 15)}};
  std::ifstream file(std::string(INGOT_TEST_DATA) + "/schedules/schedules.txt");
  size_t seen = 0;
  for (std::string line; std::getline(file, line); ++seen) {
    std::istringstream words(line);
    std::string name;
    words >> name;
    ASSERT_TRUE(twins.contains(name)) << name;
    const std::vector<double> ours = values(twins.at(name), 60);
    size_t step = 0;
    for (double theirs = 0; words >> theirs; ++step)
      ASSERT_NEAR(ours[step], theirs, kRounding) << name << " at step " << step;
    EXPECT_EQ(step, ours.size()) << name;
  }
  EXPECT_EQ(seen, twins.size());
}

// The warm-ups differ by one step: llm.c and nanochat begin at 1 / w, Hugging Face and llmq at 0, and
// nanoGPT never reaches the peak while it warms up.
TEST(Schedule, EachWarmupRuleMatchesItsFormula) {
  ScheduleConfig c = shape(ScheduleKind::kConstant, 0, 4);
  EXPECT_EQ(values(c, 6), (std::vector<double>{0, 0.25, 0.5, 0.75, 1, 1}));
  c.warmup_rule = WarmupRule::kFromOne;
  EXPECT_EQ(values(c, 6), (std::vector<double>{0.25, 0.5, 0.75, 1, 1, 1}));
  c.warmup_rule = WarmupRule::kBetween;
  EXPECT_EQ(values(c, 6), (std::vector<double>{1 / 5.0, 2 / 5.0, 3 / 5.0, 4 / 5.0, 1, 1}));
}

TEST(Schedule, MatchesNanoGpt) {
  ScheduleConfig c = shape(ScheduleKind::kCosine, 0.1, 100);
  c.warmup_rule = WarmupRule::kBetween;
  const Schedule schedule(c, steps(2000), kNoRamp);
  for (int64_t it : {0, 1, 50, 99, 100, 101, 777, 1050, 1999, 2000, 5000}) {
    double lr = 1e-4;  // train.py, get_lr, with learning_rate 1e-3 and min_lr 1e-4
    if (it < 100) {
      lr = 1e-3 * static_cast<double>(it + 1) / 101;
    } else if (it <= 2000) {
      const double ratio = static_cast<double>(it - 100) / 1900;
      lr += 0.5 * (1 + std::cos(std::acos(-1.0) * ratio)) * (1e-3 - 1e-4);
    }
    EXPECT_NEAR(1e-3 * schedule.lr(at_step(it)), lr, 1e-3 * kRounding) << it;
  }
}

// llm.c's schedulers.h: constant, then 1 - sqrt over the last 20 %.
TEST(Schedule, MatchesLlmC) {
  ScheduleConfig c = wsd(Curve::kOneMinusSqrt, 0, 0, 20);
  c.warmup_rule = WarmupRule::kFromOne;
  c.cooldown_frac = 0.2;
  const std::vector<double> ours = values(c, 200);
  for (int step = 0; step < 200; ++step) {
    double want = 1;
    if (step < 20) want = static_cast<double>(step + 1) / 20;
    if (step >= 160) want = 1 - std::sqrt((step - 160) / 40.0);
    EXPECT_NEAR(ours[static_cast<size_t>(step)], want, kRounding) << step;
  }
}

// The hybrid-precision run has t = 1 - it / 1395, w = min(t / 0.4, 1) and the multiplier w + (1 - w) 0.1.
// It reads the multiplier before the update, so the last one it applies is one step above 0.1.
TEST(Schedule, MatchesTheHybridPrecisionRun) {
  ScheduleConfig c = wsd(Curve::kLinear, 0.1, 0);
  c.cooldown_frac = 0.4;
  const std::vector<double> ours = values(c, 1395);
  for (size_t it = 0; it < ours.size(); ++it) {
    const double t = 1 - static_cast<double>(it) / 1395, w = std::min(t / 0.4, 1.0);
    ASSERT_NEAR(ours[it], w + (1 - w) * 0.1, kRounding) << it;
  }
  EXPECT_NEAR(ours.back() - 0.1, 0.9 / (0.4 * 1395), kRounding);
}

// That run's three phases are 30 % at the peak, 40 % linear and 30 % at a tenth, and
// the momentum follows them.
TEST(Schedule, MomentumFollowsTheThreePhases) {
  ScheduleConfig c;
  c.kind = ScheduleKind::kPhases;
  c.phases = {phase(30, Curve::kConstant), phase(40, Curve::kLinear, 0.1), phase(30, Curve::kConstant)};
  c.momentum_from = 0.85;
  c.momentum = {phase(30, Curve::kLinear, 0.95), phase(40, Curve::kConstant),
                phase(30, Curve::kLinear, 0.85)};
  c.validate();
  const Schedule schedule(c, steps(1000), kNoRamp);
  const auto lr = [&](int64_t s) { return schedule.lr(at_step(s)); };
  const auto momentum = [&](int64_t s) { return schedule.momentum(at_step(s)).value(); };
  EXPECT_EQ(lr(0), 1);
  EXPECT_EQ(lr(299), 1);
  EXPECT_NEAR(lr(500), 0.55, kRounding);
  EXPECT_NEAR(lr(700), 0.1, kRounding);
  EXPECT_NEAR(lr(999), 0.1, kRounding);
  EXPECT_NEAR(momentum(0), 0.85, kRounding);
  EXPECT_NEAR(momentum(150), 0.90, kRounding);
  EXPECT_NEAR(momentum(300), 0.95, kRounding);
  EXPECT_NEAR(momentum(699), 0.95, kRounding);
  EXPECT_NEAR(momentum(850), 0.90, kRounding);
  EXPECT_NEAR(momentum(1000), 0.85, kRounding);
}

TEST(Schedule, PhasesBeginWhereTheConfigurationSays) {
  ScheduleConfig c;
  c.kind = ScheduleKind::kPhases;
  c.phases_from = 1e-4;
  c.phases = {{.kind = Phase::Length::kRest, .length = 0, .curve = Curve::kExponential, .to = 1}};
  c.validate();
  const Schedule schedule(c, steps(8), kNoRamp);
  for (int64_t s = 0; s < 8; ++s)
    EXPECT_NEAR(schedule.lr(at_step(s)) / std::pow(10, -4 + 0.5 * static_cast<double>(s)), 1, 1e-12) << s;
  // The other kinds begin at the peak.
  c.kind = ScheduleKind::kConstant;
  c.phases.clear();
  EXPECT_EQ(Schedule(c, steps(8), kNoRamp).lr(at_step(0)), 1);
  c.phases_from = 1.5;
  EXPECT_THROW(c.validate(), Error);
}

// Muon's momentum rises from 0.85 to 0.95 over 300 steps and falls back over the last 50.
TEST(Schedule, MomentumWarmsUpAndCoolsDown) {
  ScheduleConfig c;
  c.momentum_from = 0.85;
  c.momentum = {{.kind = Phase::Length::kCount, .length = 300, .curve = Curve::kLinear, .to = 0.95},
                {.kind = Phase::Length::kRest, .length = 0, .curve = Curve::kConstant, .to = 0},
                {.kind = Phase::Length::kCount, .length = 50, .curve = Curve::kLinear, .to = 0.85}};
  const Schedule schedule(c, steps(1395), kNoRamp);
  for (int64_t s = 0; s < 1395; ++s) {
    const double frac = std::min(static_cast<double>(s) / 300, 1.0);
    const double back = std::max(0.0, static_cast<double>(s - 1345) / 50);
    const double want = (1 - frac) * 0.85 + frac * 0.95 - 0.10 * back;
    ASSERT_NEAR(schedule.momentum(at_step(s)).value(), want, kRounding) << s;
  }
  EXPECT_FALSE(Schedule({}, steps(10), kNoRamp).momentum(at_step(3)));
}

// The window of the speed run of January 2025: the smallest multiple of 128 that is at least 1728 step /
// steps, and 128.
TEST(Schedule, WindowGrowsInMultiples) {
  ScheduleConfig c;
  c.window = {{.kind = Phase::Length::kRest, .length = 0, .curve = Curve::kLinear, .to = 1728}};
  c.validate();
  const Schedule schedule(c, steps(1395), kNoRamp);
  for (int64_t s = 0; s <= 1395; ++s) {
    int64_t want = 128;
    while (static_cast<double>(want) < 1728.0 * static_cast<double>(s) / 1395) want += 128;
    ASSERT_EQ(schedule.window(at_step(s)), want) << s;
  }
  EXPECT_EQ(schedule.window(at_step(0)), 128);
  EXPECT_EQ(schedule.window(at_step(1394)), 1792);
  EXPECT_EQ(Schedule({}, steps(10), kNoRamp).window(at_step(3)), std::nullopt);
  c.window_multiple = 0;
  EXPECT_THROW(c.validate(), Error);
}

std::vector<ScheduleConfig> every_kind(int64_t warmup_steps) {
  std::vector<ScheduleConfig> all;
  for (ScheduleKind kind : {ScheduleKind::kConstant, ScheduleKind::kCosine, ScheduleKind::kLinear})
    all.push_back(shape(kind, 0.05, warmup_steps));
  for (Curve curve : {Curve::kLinear, Curve::kCosine, Curve::kExponential, Curve::kOneMinusSqrt})
    all.push_back(wsd(curve, 0.05, 0, warmup_steps));
  ScheduleConfig c = shape(ScheduleKind::kPhases, 0, warmup_steps);
  c.phases = {phase(30, Curve::kConstant), phase(40, Curve::kLinear, 0.1), phase(30, Curve::kConstant)};
  all.push_back(c);
  return all;
}

// Returns the most that the curve of a phase of n steps moves in one step. The steepest curve is the
// square root, at its beginning.
double largest_step(double phase_steps) { return 1 / std::sqrt(phase_steps); }

TEST(Schedule, StaysInBoundsWithoutJumpsAndNeverRisesAfterWarmup) {
  for (int64_t warmup : {0, 1, 7, 50})
    for (ScheduleConfig config : every_kind(warmup))
      for (WarmupRule rule : {WarmupRule::kFromZero, WarmupRule::kFromOne, WarmupRule::kBetween}) {
        config.warmup_rule = rule;
        const std::vector<double> all = values(config, 200);
        for (size_t s = 0; s < all.size(); ++s) {
          const bool is_warm = s > static_cast<size_t>(warmup);
          ASSERT_GE(all[s], is_warm ? 0.05 : 0.0) << s;
          ASSERT_LE(all[s], 1.0) << s;
          if (s == 0) continue;
          const double change = all[s] - all[s - 1];
          const double limit = is_warm ? largest_step(40) : 1 / static_cast<double>(warmup);
          ASSERT_LE(std::abs(change), limit + kRounding) << "a jump at " << s;
          if (is_warm) {
            ASSERT_LE(change, kRounding) << s;
          }
        }
      }
}

// Schedules measured in steps, tokens or time are the same curve of the run's progress.
TEST(Schedule, DependsOnProgressAlone) {
  for (const ScheduleConfig& config : every_kind(0)) {
    const Schedule by_steps(config, steps(400), kNoRamp);
    const Schedule by_tokens(config, {RunUnit::kTokens, 400 * 64}, BatchRamp({}, 2, 32));
    const Schedule by_time(config, {RunUnit::kTime, 100}, kNoRamp);
    for (int64_t s = 0; s <= 400; s += 5) {
      const RunPosition at{
          .step = s, .tokens = s * 64, .time_s = static_cast<double>(s) / 4, .step_tokens = 64};
      ASSERT_NEAR(by_tokens.lr(at), by_steps.lr(at), kRounding) << s;
      ASSERT_NEAR(by_time.lr(at), by_steps.lr(at), kRounding) << s;
    }
  }
}

TEST(Schedule, WarmupByTokensEqualsWarmupBySteps) {
  // The warm-up is 375 tokens; a step has 50 tokens at first and 100 later.
  const BatchRamp ramp({{.micro_batches = 5, .until_tokens = 200}}, 10, 10);
  ScheduleConfig c = shape(ScheduleKind::kCosine, 0.1, 0);
  c.warmup_tokens = 375;
  for (const RunLength& length : {RunLength{RunUnit::kTokens, 10'000}, steps(102)}) {
    const Schedule schedule(c, length, ramp);
    double before = -1;
    for (int64_t s = 0; s < 102; ++s) {
      const int64_t tokens = ramp.tokens_before(s);
      const double now = schedule.lr({s, tokens, 0, ramp.step_tokens(tokens)});
      if (tokens < 375) {
        ASSERT_NEAR(now, static_cast<double>(tokens) / 375, kRounding);
      }
      if (tokens < 375) {
        ASSERT_GT(now, before);
      }
      before = now;
    }
    EXPECT_NEAR(before, 0.1, 0.01);
  }
  c.warmup_tokens = 0;
  c.warmup_steps = 6;  // 4 steps of 50 tokens and 2 of 100
  const Schedule schedule(c, {RunUnit::kTokens, 10'000}, ramp);
  const double half = (400 + 10'000) / 2.0;  // the cosine runs from token 400 to the end
  EXPECT_NEAR(schedule.lr({100, static_cast<int64_t>(half), 0, 100}), 0.55, kRounding);
  EXPECT_EQ(schedule.lr({6, 400, 0, 100}), 1);
}

// A longer run keeps every value from before the cool-down begins, whether the cool-down's
// length is in steps or a fraction.
TEST(Schedule, ExtensionDoesNotMoveTheStablePhase) {
  for (Curve curve : {Curve::kLinear, Curve::kCosine, Curve::kExponential, Curve::kOneMinusSqrt})
    for (int64_t cooldown_steps : {0, 30}) {
      const ScheduleConfig config = wsd(curve, 0.1, cooldown_steps, 10);
      const std::vector<double> shorter = values(config, 200), longer = values(config, 1000);
      const size_t stable = cooldown_steps == 0 ? 160 : 170;
      for (size_t s = 0; s <= stable; ++s) ASSERT_EQ(shorter[s], longer[s]) << s;
      EXPECT_LT(shorter[stable + 1], 1);
      EXPECT_EQ(longer[stable + 1], 1);
    }
}

TEST(Schedule, DecayMayEndBeforeTheRunDoes) {
  ScheduleConfig c = shape(ScheduleKind::kLinear, 0.2, 0);
  c.decay_steps = 50;
  const std::vector<double> all = values(c, 100);
  EXPECT_NEAR(all[25], 0.6, kRounding);
  EXPECT_EQ(all[50], 0.2);
  EXPECT_EQ(all[99], 0.2);
}

// The end of the decay may be given in steps or tokens, and both hold in runs by steps and by tokens.
TEST(Schedule, DecayEndsAtTheSameStepInEitherUnit) {
  constexpr int64_t kStepTokens = 10;
  const BatchRamp ramp({}, 1, kStepTokens);
  for (const bool is_in_tokens : {false, true}) {
    ScheduleConfig c = shape(ScheduleKind::kLinear, 0.2, 0);
    (is_in_tokens ? c.decay_tokens : c.decay_steps) = is_in_tokens ? 50 * kStepTokens : 50;
    const Schedule by_steps(c, {RunUnit::kSteps, 100}, ramp), by_tokens(c, {RunUnit::kTokens, 1000}, ramp);
    for (const int64_t step : {0, 25, 49, 50, 99}) {
      const RunPosition p{.step = step, .tokens = step * kStepTokens, .step_tokens = kStepTokens};
      const double want = step < 50 ? 1 - 0.8 * static_cast<double>(step) / 50 : 0.2;
      EXPECT_NEAR(by_steps.lr(p), want, kRounding) << step;
      EXPECT_NEAR(by_tokens.lr(p), want, kRounding) << step;
    }
    EXPECT_THROW(Schedule(c, {RunUnit::kTime, 60}, ramp), Error);
  }
}

TEST(Schedule, RefusesPhasesThatDoNotFit) {
  const auto is_refused = [](const ScheduleConfig& c) {
    return usage_error([&] {
             c.validate();
             Schedule(c, steps(100), kNoRamp);
           }) != "no error";
  };
  EXPECT_FALSE(is_refused({}));
  EXPECT_TRUE(is_refused(shape(ScheduleKind::kCosine, 0.1, -1)));
  EXPECT_TRUE(is_refused(shape(ScheduleKind::kCosine, 1.5, 0)));
  EXPECT_TRUE(is_refused(wsd(Curve::kExponential, 0, 10)));
  EXPECT_TRUE(is_refused(wsd(Curve::kLinear, 0, 101)));
  ScheduleConfig c;
  c.warmup_steps = c.warmup_tokens = 10;
  EXPECT_TRUE(is_refused(c));
  c = {};
  c.phases = {phase(30, Curve::kConstant)};
  EXPECT_TRUE(is_refused(c)) << "phases without their kind";
  c.kind = ScheduleKind::kPhases;
  EXPECT_FALSE(is_refused(c));
  c.phases.push_back(phase(71, Curve::kLinear, 0.5));
  EXPECT_TRUE(is_refused(c)) << "101 %";
  c.phases.back() = phase(70, Curve::kLinear, 1.5);
  EXPECT_TRUE(is_refused(c)) << "above the peak";
  c.phases.back() = phase(70, Curve::kExponential, 0);
  EXPECT_TRUE(is_refused(c)) << "exponential to zero";
  c.phases = {{}, {}};
  EXPECT_TRUE(is_refused(c)) << "two rests";
  c = {};
  c.momentum = {phase(10, Curve::kLinear, 1.0)};
  EXPECT_TRUE(is_refused(c));
}

TEST(Schedule, LimitsAreWhereTheErrorsSay) {
  struct Limit {
    double ScheduleConfig::*value;
    std::vector<double> good, bad;
  };
  const double widest = 1 << 24;
  for (const Limit& limit :
       std::vector<Limit>{{&ScheduleConfig::floor, {0, 1}, {-0.01, 1.01}},
                          {&ScheduleConfig::cooldown_frac, {0.01, 1}, {0, 1.01}},
                          {&ScheduleConfig::phases_from, {0, 1}, {-0.01, 1.01}},
                          {&ScheduleConfig::momentum_from, {0, 0.99}, {-0.01, 1}},
                          {&ScheduleConfig::window_from, {0, widest}, {-1, widest + 1}}}) {
    ScheduleConfig c;
    for (const double value : limit.good) EXPECT_NO_THROW((c.*limit.value = value, c.validate())) << value;
    for (const double value : limit.bad) EXPECT_THROW((c.*limit.value = value, c.validate()), Error) << value;
  }
  for (int64_t ScheduleConfig::*count :
       {&ScheduleConfig::warmup_steps, &ScheduleConfig::warmup_tokens, &ScheduleConfig::decay_steps,
        &ScheduleConfig::decay_tokens, &ScheduleConfig::cooldown_steps}) {
    ScheduleConfig c;
    for (const int64_t value : {0, 1}) EXPECT_NO_THROW((c.*count = value, c.validate()));
    EXPECT_THROW((c.*count = -1, c.validate()), Error);
  }
  ScheduleConfig c;
  EXPECT_NO_THROW((c.window_multiple = 1, c.validate()));
  EXPECT_THROW((c.window_multiple = 0, c.validate()), Error);
  c = {};
  c.decay_steps = c.decay_tokens = 1;
  EXPECT_THROW(c.validate(), Error);
}

TEST(BatchRamp, StepsAndTokensAgree) {
  const BatchRamp ramp(
      {{.micro_batches = 1, .until_tokens = 100}, {.micro_batches = 3, .until_tokens = 1000}}, 8, 32);
  int64_t tokens = 0;
  for (int64_t step = 0; step < 60; ++step) {
    ASSERT_EQ(ramp.tokens_before(step), tokens) << step;
    ASSERT_EQ(ramp.steps_for(tokens), step);
    ASSERT_EQ(ramp.steps_for(tokens + 1), step + 1);
    const int64_t want = tokens < 100 ? 1 : tokens < 1000 ? 3 : 8;
    ASSERT_EQ(ramp.micro_batches(tokens), want);
    ASSERT_EQ(ramp.step_tokens(tokens), want * 32);
    tokens += want * 32;
  }
  EXPECT_EQ(ramp.micro_batches(99), 1);
  EXPECT_EQ(ramp.micro_batches(100), 3) << "until a number of tokens is before it";
}

TEST(BatchRamp, RefusesStagesThatDoNotRise) {
  using Stages = std::vector<BatchStage>;
  EXPECT_THROW(BatchRamp(Stages{{.micro_batches = 4, .until_tokens = 100}}, 4, 1), Error);
  EXPECT_THROW(
      BatchRamp(Stages{{.micro_batches = 2, .until_tokens = 100}, {.micro_batches = 1, .until_tokens = 200}},
                4, 1),
      Error);
  EXPECT_THROW(
      BatchRamp(Stages{{.micro_batches = 1, .until_tokens = 100}, {.micro_batches = 2, .until_tokens = 100}},
                4, 1),
      Error);
}

}  // namespace
}  // namespace ingot
