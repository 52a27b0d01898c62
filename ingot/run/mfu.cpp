#include "ingot/run/mfu.h"

#include <algorithm>
#include <array>

#include "ingot/core/error.h"

namespace ingot {
namespace {

constexpr double kEnough_s = 0.4;    // the measurement ends after this
constexpr double kOfTraining = 0.1;  // at most this fraction of training, until kEnough_s
constexpr double kShortest_s = 0.1;  // minimum of one measurement
constexpr int kAboveAreTooMany = 3;  // the clock of a single step may be off

}  // namespace

MfuMeter::MfuMeter(DType dtype, Device device, bool is_tf32, Communicator& ranks, double known_gflops)
    : peak_(dtype, device, is_tf32), ranks_(ranks) {
  std::array<double, 1> known{known_gflops};
  ranks_.max(known);
  total_gflops_ = known[0];
  if (device == Device::kCpu || total_gflops_ > 0) return;
  peak_.measure(kEnough_s);
  total_gflops_ = ranks_.sum(peak_.gflops());
}

void MfuMeter::measure_more(double train_s) {
  if (peak_.measured_s() < kEnough_s) {
    const double room_s = std::min(kOfTraining * train_s, kEnough_s) - peak_.measured_s();
    if (room_s >= kShortest_s || (room_s > 0 && kEnough_s - peak_.measured_s() < kShortest_s))
      peak_.measure(room_s);
  }
  const bool is_enough = peak_.measured_s() >= kEnough_s;
  std::array<double, 2> sums{is_enough ? peak_.gflops() : 0, is_enough ? 1.0 : 0.0};
  ranks_.sum(sums);
  if (sums[1] == static_cast<double>(ranks_.size())) total_gflops_ = sums[0];
}

std::optional<double> MfuMeter::of_step(double flops_per_s, double train_s) {
  if (total_gflops_ == 0) measure_more(train_s);
  if (total_gflops_ == 0 || is_wrong_) return std::nullopt;
  const double mfu = flops_per_s / (total_gflops_ * 1e9);
  above_ = mfu > 1 ? above_ + 1 : 0;
  is_wrong_ = above_ == kAboveAreTooMany;
  if (mfu > 1) return std::nullopt;
  return mfu;
}

std::optional<double> MfuMeter::peak_gflops() const {
  if (total_gflops_ == 0 || is_wrong_) return std::nullopt;
  return total_gflops_;
}

}  // namespace ingot
