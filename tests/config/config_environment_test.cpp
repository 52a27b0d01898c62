#include "ingot/config/config_environment.h"

#include <gmock/gmock.h>

#include <cstdlib>

#include "tests/reference/error_of.h"

namespace ingot {
namespace {

class ConfigEnvironmentTest : public testing::Test {
 protected:
  void SetUp() override { TearDown(); }
  void TearDown() override {
    for (const char* name : {"INGOT_TRAIN_THREADS", "INGOT_TRAIN_STEPS", "INGOT_DATA_WORKERS"})
      unsetenv(name);
  }
  static ConfigBuilder built(const char* override_ = nullptr) {
    ConfigBuilder builder;
    builder.add_source("tiny-llama");
    add_environment(builder);
    if (override_) builder.add_override(override_);
    builder.build();
    return builder;
  }
  static std::string refusal() {
    return usage_error([&] { built(); });
  }
};

TEST_F(ConfigEnvironmentTest, SetsWhatBelongsToTheMachine) {
  setenv("INGOT_TRAIN_THREADS", "3", 1);
  setenv("INGOT_DATA_WORKERS", "", 1);
  setenv("INGOT_OTHER", "x", 1);
  ConfigBuilder builder = built();
  EXPECT_EQ(builder.config().train.threads, 3);
  EXPECT_EQ(builder.config().data.workers, DataConfig{}.workers);
  EXPECT_EQ(builder.set_by_user("train.threads"), "INGOT_TRAIN_THREADS");
  EXPECT_EQ(built("train.threads=1").config().train.threads, 1) << "--set is stronger";
  unsetenv("INGOT_OTHER");
}

TEST_F(ConfigEnvironmentTest, RefusesWhatARunComputes) {
  setenv("INGOT_TRAIN_STEPS", "5", 1);
  EXPECT_THAT(refusal(), testing::HasSubstr("INGOT_TRAIN_STEPS: the environment sets train.device"));
  EXPECT_THAT(refusal(), testing::HasSubstr("give --set train.steps=5"));
}

TEST_F(ConfigEnvironmentTest, NamesTheVariableOfABadValue) {
  setenv("INGOT_TRAIN_THREADS", "many", 1);
  EXPECT_THAT(refusal(), testing::HasSubstr("INGOT_TRAIN_THREADS: train.threads must be a whole number"));
}

}  // namespace
}  // namespace ingot
