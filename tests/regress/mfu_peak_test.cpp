// Seen: MFU was printed as 126 %, because the peak that it is a fraction of was measured on a tenth of a
// second of matrix products at the start. Wanted: the peak is measured for long enough, between the steps,
// or no MFU is printed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

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
  EXPECT_EQ(meter.peak_gflops(), peak);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(meter.of_step(2e9 * peak, 100), std::nullopt);
  EXPECT_EQ(meter.of_step(1, 100), std::nullopt);  // the peak is wrong, and a run has only one
  EXPECT_EQ(meter.peak_gflops(), std::nullopt);
}

// Seen: 6.0 % before a resume and 70.7 % after it, because each part of the run measured its own peak.
TEST(MfuPeak, AResumedRunKeepsThePeakOfItsBeginning) {
  const std::unique_ptr<Communicator> alone = self_communicator();
  MfuMeter meter(DType::f32, Device::kCpu, false, *alone, 1234);
  EXPECT_EQ(meter.of_step(617e9, 0.1), 0.5);
  EXPECT_EQ(meter.peak_gflops(), 1234);
}

class MfuOfARun : public ProgramInFolder {};

TEST_F(MfuOfARun, IsAbsentFromShortRuns) {
  const Outcome ended = run(small_run("run", {"train.steps=3"}));
  ASSERT_EQ(ended.exit_code, 0) << ended.output;
  EXPECT_THAT(ended.output, testing::HasSubstr("mfu n/a"));
  EXPECT_THAT(read_file(path("run/metrics.jsonl")), testing::Not(testing::HasSubstr("\"mfu\"")));
}

TEST_F(MfuOfARun, IsOfTheRecordedPeakAfterAResumeOnTheSameMachineOnly) {
  const auto resume_with = [&](const std::string& peak, const std::string& threads) {
    const Outcome begun = run(small_run("run", {"train.steps=40", "train.stop_at=3"}));
    EXPECT_EQ(begun.exit_code, 0) << begun.output;
    nlohmann::json record = nlohmann::json::parse(read_file(path("run/run.json")));
    record["product_peak_gflops"] = nlohmann::json::parse(peak);
    if (!threads.empty()) record["threads"] = nlohmann::json::parse(threads);
    write_file(path("run/run.json"), record.dump());
    EXPECT_EQ(run({"train", "--resume", "--out", path("run"), "--set", "train.stop_at=0"}).exit_code, 0);
    const nlohmann::json after =
        nlohmann::json::parse(read_file(path("run/run.json")))["product_peak_gflops"];
    std::filesystem::remove_all(folder_ / "run");
    return after;
  };
  EXPECT_EQ(resume_with("123456.5", ""), 123456.5);
  EXPECT_NE(resume_with("123456.5", "99"), 123456.5);
}

}  // namespace
}  // namespace ingot
