// Tests how the keys of the schedule, the batch ramp and the guard are read, written back and refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ingot/config/config_toml.h"
#include "ingot/config/run_plan.h"
#include "tests/config/built_config.h"
#include "tests/reference/error_of.h"

namespace ingot {
namespace {

using ::testing::HasSubstr;

constexpr const char* kCourse = R"(
[train]
steps = 1000
grad_accum = 8
batch_ramp = ["1 until 4k", "4 until 0.5M"]

[schedule]
kind = "phases"
warmup_steps = 10
warmup_rule = "(s+1)/w"
phases = ["30% constant", "400 linear to 0.1", "rest exponential to 0.05"]
momentum_from = 0.85
momentum = ["300 linear to 0.95", "rest constant", "7.5% cosine to 0.85"]

[guard]
non_finite = "skip"
spike = "stop"
)";

TEST(ConfigSchedule, ReadsPhasesStagesAndPolicies) {
  ConfigBuilder builder;
  builder.add_toml(kCourse, "run.toml");
  const RunConfig& c = builder.build();
  const std::vector<Phase> want = {
      {.kind = Phase::Length::kPercent, .length = 30, .curve = Curve::kConstant, .to = 1},
      {.kind = Phase::Length::kCount, .length = 400, .curve = Curve::kLinear, .to = 0.1},
      {.kind = Phase::Length::kRest, .length = 0, .curve = Curve::kExponential, .to = 0.05}};
  EXPECT_EQ(c.schedule.phases, want);
  EXPECT_EQ(c.schedule.warmup_rule, WarmupRule::kFromOne);
  EXPECT_EQ(c.schedule.momentum.size(), 3u);
  EXPECT_EQ(c.train.batch_ramp[0], (BatchStage{.micro_batches = 1, .until_tokens = 4000}));
  EXPECT_EQ(c.train.batch_ramp[1], (BatchStage{.micro_batches = 4, .until_tokens = 500'000}));
  EXPECT_EQ(c.guard.non_finite, GuardPolicy::kSkip);
  EXPECT_EQ(c.guard.spike, GuardPolicy::kStop);
}

TEST(ConfigSchedule, ReadsBackAsItWasWritten) {
  ConfigBuilder first;
  first.add_toml(kCourse, "run.toml");
  const std::string text = config_toml(first.build(), ConfigDocs::kComments);
  EXPECT_THAT(text, HasSubstr("\"400 linear to 0.1\""));
  EXPECT_THAT(text, HasSubstr("\"7.5% cosine to 0.85\""));
  EXPECT_THAT(text, HasSubstr("\"4 until 500000\""));
  ConfigBuilder second;
  second.add_toml(text, "again.toml");
  EXPECT_EQ(config_toml(second.build(), ConfigDocs::kComments), text);
}

TEST(ConfigSchedule, TakesAPhaseFromTheCommandLine) {
  const RunConfig c = built_config("", {"schedule.kind=phases", "schedule.phases=rest linear to 0"});
  EXPECT_EQ(c.schedule.phases.size(), 1u);
}

TEST(ConfigSchedule, RefusesWhatItCannotRead) {
  const auto refusal = [](const std::string& assignment) {
    return usage_error([&] { built_config("", {assignment}); });
  };
  for (const char* phase : {"30%", "30 % linear to 1", "x linear to 1", "30% linear", "30% linear 0.1",
                            "30% constant to 1", "30% wavy to 1", "30% linear to much", "rest linear to nan"})
    EXPECT_THAT(refusal(std::string("schedule.phases=") + phase), HasSubstr("schedule.phases must be phases"))
        << phase;
  EXPECT_THAT(refusal("train.batch_ramp=2 to 16M"), HasSubstr("2 until 16M"));
  EXPECT_THAT(refusal("train.batch_ramp=2 until 16M"), HasSubstr("below train.grad_accum = 1"));
  EXPECT_THAT(refusal("schedule.phases=rest constant"), HasSubstr("set the kind"));
  EXPECT_THAT(refusal("guard.non_finite=report"), HasSubstr("one of stop, skip, rollback"));
  EXPECT_THAT(refusal("guard.non_finite=rollback"), HasSubstr("checkpoint.every"));
  EXPECT_THAT(refusal("guard.spike_threshold=0"), HasSubstr("above 0"));
  EXPECT_THAT(refusal("schedule.warmup_rule=s"), HasSubstr("s/w"));
}

TEST(ConfigSchedule, RefusesPhasesThatDoNotFitTheRun) {
  ConfigBuilder builder;
  builder.add_toml("[train]\nsteps = 100\n[schedule]\nkind = \"wsd\"\ncooldown_steps = 200\n", "run.toml");
  EXPECT_THAT(error_of([&] { builder.build(); }),
              testing::AllOf(HasSubstr("run.toml:5"), HasSubstr("schedule.cooldown_steps")));
}

TEST(RunPlan, EndsByStepsTokensOrTime) {
  RunConfig c;
  c.train.steps = 50;
  c.train.batch_size = 2;
  c.train.grad_accum = 3;
  c.model.context = 10;
  const RunPlan by_steps(c);
  EXPECT_EQ(by_steps.progress(by_steps.position(25, 0, 0)), 0.5);
  EXPECT_FALSE(by_steps.is_finished(by_steps.position(49, 1'000'000, 1e6)));
  EXPECT_TRUE(by_steps.is_finished(by_steps.position(50, 0, 0)));
  c.train.max_tokens = 601;
  const RunPlan by_tokens(c);
  EXPECT_EQ(by_tokens.steps(), 11);
  EXPECT_FALSE(by_tokens.is_finished(by_tokens.position(50, 600, 0)));
  EXPECT_TRUE(by_tokens.is_finished(by_tokens.position(11, 660, 0)));
  c.train.max_tokens = 0;
  c.train.max_time_s = 10;
  const RunPlan by_time(c);
  EXPECT_EQ(by_time.progress(by_time.position(50, 600, 2.5)), 0.25);
  EXPECT_EQ(by_time.lr(by_time.position(0, 0, 0)), c.optimizer.lr);
}

}  // namespace
}  // namespace ingot
