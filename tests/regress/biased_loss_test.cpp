// Seen: tiny-llama with 512 tokens and head.loss_dtype = "bf16" trained on a loss that was 0.2 nats too
// low, and the loss check, whose limit was a tenth of the loss, never stopped the run. Wanted: under
// default keys the run stops within 30 steps, an otherwise equal run with a correct loss does not, and
// report.html shows the checks.
#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "ingot/core/error.h"
#include "ingot/core/file.h"
#include "tests/regress/run_script.h"

namespace ingot {
namespace {

class BiasedLoss : public ScriptTest {
 protected:
  // Trains tiny-llama for 30 steps on the project's own documents and returns the exit code.
  int train(const std::string& loss_dtype) {
    const std::string source = INGOT_SOURCE_DIR;
    const Outcome outcome = run_command(fmt::format(
        "{} train tiny-llama --data {}/README.md --data {}/docs/optimizers.md --out {} --set train.steps=30 "
        "--set train.stats_every=10 --set precision.compute=bf16 --set head.precision=bf16 "
        "--set head.loss_dtype={} --set sample.count=0 --set eval.every=0",
        INGOT_PROGRAM, source, source, path(loss_dtype), loss_dtype));
    said_ = outcome.output;
    return outcome.exit_code;
  }
};

TEST_F(BiasedLoss, StopsTheRunWithinThirtySteps) {
  EXPECT_EQ(train("bf16"), exit_code(ErrorKind::kNumerics)) << said_;
  EXPECT_THAT(said_, testing::HasSubstr("the last 3 checks all lie to this side"));
}

TEST_F(BiasedLoss, IsNotSeenInAHealthyRunWhoseReportShowsTheChecks) {
  EXPECT_EQ(train("bf16_logits"), 0) << said_;
  const std::string report = read_file(folder_ / "bf16_logits" / "report.html");
  EXPECT_THAT(report, testing::HasSubstr("raw_ce_fp32"));
  EXPECT_THAT(report, testing::HasSubstr("Gradient norm by parameter, before clipping"));
}

}  // namespace
}  // namespace ingot
