// Seen: MFU was printed as 126 %, because the peak that it is a fraction of was measured on a tenth of a
// second of matrix products at the start. Wanted: the peak is measured for long enough, between the steps,
// or no MFU is printed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ingot/run/mfu.h"
#include "tests/regress/run_program.h"

namespace ingot {
namespace {

TEST(MfuPeak, IsAbsentBeforeItWasMeasuredLongEnough) {
  const std::unique_ptr<Communicator> alone = self_communicator();
  MfuMeter meter(DType::f32, Device::kCpu, false, *alone);
  EXPECT_EQ(meter.of_step(1e9, 0.1), std::nullopt);  // a tenth of the training time would be 10 ms: too short
  EXPECT_EQ(meter.of_step(1e9, 0.2), std::nullopt);  // 20 ms: still too short
  EXPECT_EQ(meter.peak_gflops(), std::nullopt);
  const auto mfu = meter.of_step(1e6, 100);  // measures for 0.4 s
  ASSERT_TRUE(mfu && meter.peak_gflops());
  EXPECT_NEAR(*mfu, 1e6 / (*meter.peak_gflops() * 1e9), 1e-15);
}

TEST(MfuPeak, AStepAboveThePeakNeverHasAnMfuAboveOne) {
  const std::unique_ptr<Communicator> alone = self_communicator();
  MfuMeter meter(DType::f32, Device::kCpu, false, *alone);
  meter.of_step(1, 100);
  const double peak = meter.peak_gflops().value();
  EXPECT_EQ(meter.of_step(2e9 * peak, 100), std::nullopt);  // an impossible speed: a glitch of the clock
  EXPECT_TRUE(meter.of_step(1e9 * peak, 100).has_value());
  for (int i = 0; i < 3; ++i) EXPECT_EQ(meter.of_step(1e15, 100), std::nullopt);
  EXPECT_GE(meter.peak_gflops().value(), peak);  // the peak was measured again
  for (int i = 0; i < 9; ++i) EXPECT_EQ(meter.of_step(1e15, 100), std::nullopt);
  EXPECT_EQ(meter.of_step(1, 100), std::nullopt);  // the measured peak has been discarded
  EXPECT_EQ(meter.peak_gflops(), std::nullopt);
}

class MfuOfARun : public ProgramInFolder {};

TEST_F(MfuOfARun, IsAbsentFromShortRuns) {
  const Ended ended = run(small_run("run", {"train.steps=3"}));
  ASSERT_EQ(ended.exit_code, 0) << ended.output;
  EXPECT_THAT(ended.output, testing::HasSubstr("mfu n/a"));
  EXPECT_THAT(read_file(path("run/metrics.jsonl")), testing::Not(testing::HasSubstr("\"mfu\"")));
}

}  // namespace
}  // namespace ingot
