#include "ingot/run/peak.h"

#include <algorithm>
#include <array>
#include <vector>

#include "ingot/core/arena.h"
#include "ingot/core/copy.h"
#include "ingot/core/cuda/cuda_device.h"
#include "ingot/core/median.h"
#include "ingot/memory/memory_plan.h"
#include "ingot/ops/fill_normal.h"
#include "ingot/ops/matmul.h"
#include "ingot/ops/tf32.h"
#include "ingot/run/run_clock.h"

namespace ingot {
namespace {

constexpr int64_t kFirstCpuSize = 384, kLastCpuSize = 3072;
// A product that takes this long on a CPU hides the cost of starting its threads.
constexpr double kLongEnough_s = 5e-4;
constexpr int kFewest = 3;
constexpr size_t kProductsPerRound = 9;  // on a device, between two waits of the host
constexpr MatmulForm kForms[] = {MatmulForm::kNT, MatmulForm::kNN, MatmulForm::kTN};

// Rows of the product, enough for every core of a CPU and every multiprocessor of a GPU.
int64_t first_size([[maybe_unused]] Device device) {
  if constexpr (kHasCuda) {
    if (device == Device::kCuda) return kPeakRows * cuda::devices().front().multiprocessors;
  }
  return kFirstCpuSize;
}

}  // namespace

double ProductPeak::repeat(int64_t size, double time_s) {
  const auto bytes = static_cast<size_t>(size * size) * size_bytes(dtype_) + Arena::kDeviceAlign;
  Arena arena("peak", 2 * bytes, memory_of(device_));
  // The product of a with itself has the rate of any other and needs a third less memory.
  const Tensor a = arena.alloc(dtype_, {size, size}), c = arena.alloc(dtype_, {size, size});
  Stream stream = make_stream(device_);
  allow_tf32(stream, is_tf32_);
  fill_normal(a, 1, stream);
  if (device_ == Device::kCuda) return repeat_on_device({a, c}, time_s, stream);
  double best_s = 1e9;
  const auto begin = RunClock::now();
  for (int i = 0; i < kFewest || seconds_since(begin) < time_s; ++i) {
    const auto start = RunClock::now();
    matmul(c, a, a, kForms[i % 3], false, stream);
    best_s = std::min(best_s, seconds_since(start));
    if (i + 1 >= kFewest && best_s < kLongEnough_s && size < kLastCpuSize / 2) break;
  }
  measured_s_ += seconds_since(begin);
  gflops_ = std::max(gflops_, 2e-9 * static_cast<double>(size * size * size) / best_s);
  return best_s;
}

// A device computes for as long as its caller trains, so its peak is the median of products that follow each
// other without a gap, after a first round that chooses the kernels and warms up.
double ProductPeak::repeat_on_device([[maybe_unused]] const Operands& at, [[maybe_unused]] double time_s,
                                     [[maybe_unused]] Stream& stream) {
  std::vector<double> times_s;
  if constexpr (kHasCuda) {
    const auto begin = RunClock::now();
    for (int round = 0; round < 2 || seconds_since(begin) < time_s; ++round) {
      std::array<cuda::Event, kProductsPerRound + 1> events;
      events[0].record(stream);
      for (size_t i = 0; i < kProductsPerRound; ++i) {
        matmul(at.c, at.a, at.a, kForms[i % 3], false, stream);
        events[i + 1].record(stream);
      }
      synchronize(stream);
      for (size_t i = 0; round > 0 && i < kProductsPerRound; ++i)
        times_s.push_back(events[i + 1].seconds_since(events[i]));
    }
    measured_s_ += seconds_since(begin);
  }
  INGOT_CHECK(!times_s.empty(), "a product on a device in a build without CUDA");
  const double median_s = median_of(times_s), size = static_cast<double>(at.a.dim(0));
  gflops_ = std::max(gflops_, 2e-9 * size * size * size / median_s);
  return median_s;
}

// Two sizes, with half of the time each: on a processor that other processes use, long products are seldom
// undisturbed; on an idle one, short products do not reach the peak.
void ProductPeak::measure(double time_s) {
  if (size_ == 0) size_ = first_size(device_);
  const double end_s = measured_s_ + time_s;
  const bool has_two_sizes = device_ == Device::kCpu;
  const double first_end_s = has_two_sizes ? measured_s_ + time_s / 2 : end_s;
  while (repeat(size_, first_end_s - measured_s_) < kLongEnough_s && has_two_sizes &&
         size_ < kLastCpuSize / 2)
    size_ *= 2;
  if (has_two_sizes) repeat(2 * size_, end_s - measured_s_);
}

}  // namespace ingot
