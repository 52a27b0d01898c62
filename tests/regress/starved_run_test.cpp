// Regression: values that train nothing passed without a word, and limits of threads and addresses ended a
// run with a raw text of the C++ library or with SIGSEGV.
#include <gmock/gmock.h>
#include <sys/resource.h>

#include "ingot/config/config_toml.h"
#include "ingot/config/idle_settings.h"
#include "ingot/config/presets.h"
#include "tests/config/built_config.h"
#include "tests/regress/run_program.h"
#include "tests/regress/sanitizer.h"

namespace ingot {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class StarvedRun : public ProgramInFolder {
 protected:
  Outcome run_limited(const std::string& limit, const std::vector<std::string>& arguments) const {
    std::string line = "ulimit " + limit + "; exec '" INGOT_PROGRAM "'";
    for (const std::string& word : arguments) line += " '" + word + "'";
    const std::string command = "{ " + line + "; } >'" + path("output") + "' 2>&1";
    const pid_t pid = fork();
    if (pid == 0) {
      setenv("OMP_WAIT_POLICY", "passive", 1);
      execl("/bin/bash", "bash", "-c", command.c_str(), nullptr);
      _exit(127);
    }
    return wait(pid);
  }
};

// Every run of more than 1,000 steps was warned that "what is divided by it is nearly 0", because train.steps
// ends with "eps".
TEST(IdleSettings, NoPresetHasAny) {
  for (const Preset& preset : presets()) {
    const RunConfig c = built_config(std::string(preset.name), {"train.steps=1000000"});
    EXPECT_THAT(idle_settings(c), IsEmpty()) << preset.name;
  }
}

TEST(IdleSettings, NamesValuesAtTheEdgesOfTheirTypes) {
  RunConfig config;
  EXPECT_THAT(idle_settings(config), IsEmpty());
  config.model.norm_eps = 1e300;
  EXPECT_THAT(idle_settings(config), ElementsAre(HasSubstr("model.norm_eps = 1e+300 is infinite in f32")));
  config = {};
  config.optimizer.grad_clip = 1e-300;
  EXPECT_THAT(idle_settings(config), ElementsAre(HasSubstr("optimizer.grad_clip = 1e-300 is 0 in f32")));
  config.optimizer.grad_clip = 1e-20;
  EXPECT_THAT(idle_settings(config), ElementsAre(HasSubstr("the clipped gradients are nearly 0")));
  config = {};
  config.precision.loss_scale.constant = 1e-30;
  EXPECT_THAT(idle_settings(config), IsEmpty());  // not used in f32
  config.precision.compute = DType::f16;
  EXPECT_THAT(idle_settings(config), ElementsAre(HasSubstr("gradients in f16 become 0")));
}

TEST(IdleSettings, NamesThoseOfTheOptimizersGroups) {
  const auto warnings = [](const std::string& groups) {
    ConfigBuilder builder;
    builder.add_override("optimizer.group=" + groups);
    return idle_settings(builder.config());
  };
  EXPECT_THAT(
      warnings("[{match = ['*.w'], lr = 1e-3, beta2 = 0.9}, {kind = 'muon', momentum = 0.9, lr_scale = 2}]"),
      IsEmpty());
  EXPECT_THAT(warnings("[{lr = 0.1}, {lr = 1e-20}]"),
              ElementsAre(HasSubstr("optimizer.group 2: lr = 1e-20: a step changes no weight")));
  EXPECT_THAT(warnings("[{eps = 1e300}]"),
              ElementsAre(HasSubstr("optimizer.group 1: eps = 1e+300 is infinite in f32")));
  EXPECT_THAT(warnings("[{lr_scale = 1e-30}]"),
              ElementsAre(HasSubstr("optimizer.group 1: lr_scale = 1e-30: a step changes no weight")));
  EXPECT_THAT(warnings("[{kind = 'sgd', beta2 = 0.9}]"),
              ElementsAre("optimizer.group 1: beta2 has no effect: sgd has no such option"));
}

TEST_F(StarvedRun, WarnsBeforeTheFirstStep) {
  const Outcome ended = run(small_run("run", {"train.steps=2", "optimizer.eps=1e300", "optimizer.lr=1e-20"}));
  EXPECT_EQ(ended.exit_code, 0) << ended.output;
  const size_t warning = ended.output.find("warning: optimizer.eps = 1e+300 is infinite in f32");
  EXPECT_LT(warning, ended.output.find("step      1")) << ended.output;
  EXPECT_THAT(ended.output, HasSubstr("optimizer.lr = 1e-20: a step changes no weight"));
}

TEST_F(StarvedRun, NamesTheLimitOfAddresses) {
  if (kHasAddressSanitizer)
    GTEST_SKIP() << "SKIPPED LOUDLY: the address sanitizer reserves terabytes of addresses";
  int refused = 0;
  for (int kilobytes = 60'000; kilobytes <= 400'000; kilobytes += 20'000) {
    const std::string out = fmt::format("run{}", kilobytes);
    const Outcome ended = run_limited(fmt::format("-v {}", kilobytes), small_run(out, {"train.steps=1"}));
    if (ended.exit_code == 0 || ended.exit_code == 127)
      continue;  // enough, or too little to load the libraries
    ++refused;
    EXPECT_GT(ended.exit_code, 0) << kilobytes << " ended by a signal: " << ended.output;
    EXPECT_THAT(ended.output, HasSubstr("ulimit -v")) << kilobytes;
  }
  EXPECT_GT(refused, 0);
}

}  // namespace
}  // namespace ingot
