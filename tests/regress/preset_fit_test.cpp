// Seen: `--set train.steps=1` on a preset failed because of the preset's own schedule.warmup_steps, and was
// silently ignored on a preset that counts tokens. Wanted: the keys of a preset adapt to the run length
// that the user sets, with a note for every change; contradictions between the user's own keys stay errors.
#include "ingot/config/preset_fit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "ingot/config/config_toml.h"
#include "ingot/config/presets.h"
#include "ingot/core/error.h"

namespace ingot {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

ConfigBuilder fitted(const std::string& preset, const std::vector<std::string>& overrides) {
  ConfigBuilder builder;
  builder.add_source(preset);
  for (const std::string& assignment : overrides) builder.add_override(assignment);
  static_cast<void>(builder.build());
  return builder;
}

TEST(PresetFit, WarmUpKeepsItsFractionOfAShorterRun) {
  ConfigBuilder one = fitted("tiny-llama", {"train.steps=1"});
  EXPECT_EQ(one.config().schedule.warmup_steps, 0);
  EXPECT_THAT(one.notes(),
              ElementsAre(HasSubstr("schedule.warmup_steps = 10 of the preset tiny-llama does not fit")));
  EXPECT_THAT(one.notes()[0], HasSubstr("is 0 here"));
  EXPECT_EQ(fitted("gpt2-124m", {"train.steps=100"}).config().schedule.warmup_steps, 4);  // 700 of 19073
}

TEST(PresetFit, SettingsThatFitAreUnchanged) {
  EXPECT_THAT(fitted("tiny-llama", {"train.steps=10"}).notes(), IsEmpty());
  EXPECT_EQ(fitted("tiny-llama", {"train.steps=10"}).config().schedule.warmup_steps, 10);
  EXPECT_THAT(fitted("tiny-llama", {}).notes(), IsEmpty());
  for (const Preset& preset : presets())
    EXPECT_THAT(fitted(std::string(preset.name), {}).notes(), IsEmpty()) << preset.name;
}

TEST(PresetFit, AUsersOwnContradictionIsAnError) {
  ConfigBuilder builder;
  builder.add_source("tiny-llama");
  builder.add_override("train.steps=5");
  builder.add_override("schedule.warmup_steps=6");
  EXPECT_THAT([&] { static_cast<void>(builder.build()); },
              testing::ThrowsMessage<Error>(HasSubstr("--set: schedule.warmup_steps must be at most")));
  ConfigBuilder file;
  file.add_toml("preset = \"tiny-llama\"\n[train]\nsteps = 5\n[schedule]\nwarmup_steps = 6\n", "run.toml");
  EXPECT_THAT([&] { static_cast<void>(file.build()); },
              testing::ThrowsMessage<Error>(HasSubstr("run.toml:5")));
}

TEST(PresetFit, AUsersLengthReplacesThePresetsLengthInAnotherUnit) {
  ConfigBuilder steps = fitted("llama2-7b-tiny", {"train.steps=5"});  // its length is in tokens
  EXPECT_EQ(steps.config().train.max_tokens, 0);
  EXPECT_LE(steps.config().schedule.warmup_steps, 5);
  EXPECT_THAT(steps.notes()[0], HasSubstr("train.max_tokens = 2000000 of the preset"));
  EXPECT_EQ(fitted("demo", {"train.steps=5"}).config().train.max_time_s, 0);
  ConfigBuilder time = fitted("llama2-7b-tiny", {"train.max_time=5s"});
  EXPECT_EQ(time.config().train.max_tokens, 0);
  EXPECT_EQ(time.config().train.max_time_s, 5);
}

TEST(PresetFit, EveryPresetTakesAnyNumberOfSteps) {
  for (const Preset& preset : presets())
    for (const char* steps : {"1", "2", "7", "100"}) {
      const std::string name(preset.name);
      EXPECT_NO_THROW(fitted(name, {std::string("train.steps=") + steps})) << name << " with " << steps;
    }
  EXPECT_NO_THROW(fitted("gpt3-175b-tiny", {"train.grad_accum=1"}));
}

TEST(PresetFit, PhasesAndRampsAreScaledWithTheRun) {
  ConfigBuilder hybrid = fitted("hybrid-124m", {"train.steps=100"});  // the phase has 300 of 1395 steps
  ASSERT_EQ(hybrid.config().schedule.momentum.size(), 2);
  EXPECT_EQ(hybrid.config().schedule.momentum[0].length, 21);
  RunConfig preset;
  preset.preset = "mine";
  preset.train.steps = 1000;
  preset.train.grad_accum = 4;
  preset.train.batch_ramp = {{.micro_batches = 1, .until_tokens = 100'000},
                             {.micro_batches = 2, .until_tokens = 2'000'000}};
  preset.schedule.cooldown_steps = 500;
  preset.schedule.decay_steps = 1000;
  RunConfig config = preset;
  config.train.steps = 10;
  const auto all = [](std::string_view) { return true; };
  const auto only_steps = [](std::string_view key) { return key == "train.steps"; };
  const std::vector<std::string> notes = fit_preset(config, preset, all, only_steps);
  EXPECT_EQ(config.schedule.decay_steps, 10);
  EXPECT_EQ(config.schedule.cooldown_steps, 5);
  EXPECT_EQ(config.train.batch_ramp[1].until_tokens, 20'000);
  EXPECT_LT(config.train.batch_ramp[0].until_tokens, config.train.batch_ramp[1].until_tokens);
  EXPECT_EQ(notes.size(), 3);
}

}  // namespace
}  // namespace ingot
