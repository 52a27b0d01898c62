// Seen: tiny-llama with 512 tokens and head.loss_dtype = "bf16" trained on a loss that was 0.2 nats too
// low, and the loss check, whose limit was a tenth of the loss, never stopped the run. Wanted: under
// default keys the run stops within 30 steps, an otherwise equal run with a correct loss does not, and
// report.html shows the checks.
#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include "ingot/core/error.h"
#include "ingot/core/file.h"

namespace ingot {
namespace {

class BiasedLoss : public testing::Test {
 protected:
  BiasedLoss()
      : folder_(std::filesystem::temp_directory_path() / ("ingot_biased_loss_" + std::to_string(getpid()))) {
    make_folders(folder_);
  }
  ~BiasedLoss() override { std::filesystem::remove_all(folder_); }

  // Trains tiny-llama for 30 steps on the project's own documents and returns the exit code; the
  // output goes to out.txt.
  int train(const std::string& loss_dtype) const {
    const std::string source = INGOT_SOURCE_DIR;
    const std::string command = fmt::format(
        "{} train tiny-llama --data {}/README.md --data {}/docs/optimizers.md --out {} --set train.steps=30 "
        "--set train.stats_every=10 --set precision.compute=bf16 --set head.precision=bf16 "
        "--set head.loss_dtype={} --set sample.count=0 --set eval.every=0 >{} 2>&1",
        INGOT_PROGRAM, source, source, (folder_ / loss_dtype).string(), loss_dtype,
        (folder_ / "out.txt").string());
    const int status = std::system(command.c_str());
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }
  std::string output() const { return read_file(folder_ / "out.txt"); }

  std::filesystem::path folder_;
};

TEST_F(BiasedLoss, StopsTheRunWithinThirtySteps) {
  EXPECT_EQ(train("bf16"), exit_code(ErrorKind::kNumerics)) << output();
  EXPECT_THAT(output(), testing::HasSubstr("the last 3 checks all lie to this side"));
}

TEST_F(BiasedLoss, IsNotSeenInAHealthyRunWhoseReportShowsTheChecks) {
  EXPECT_EQ(train("bf16_logits"), 0) << output();
  const std::string report = read_file(folder_ / "bf16_logits" / "report.html");
  EXPECT_THAT(report, testing::HasSubstr("raw_ce_fp32"));
  EXPECT_THAT(report, testing::HasSubstr("Gradient norm by parameter, before clipping"));
}

}  // namespace
}  // namespace ingot
