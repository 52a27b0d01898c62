#include "ingot/run/peak.h"

#include <algorithm>
#include <chrono>

#include "ingot/core/arena.h"
#include "ingot/core/copy.h"
#include "ingot/core/cuda/cuda_device.h"
#include "ingot/ops/matmul.h"
#include "ingot/ops/tf32.h"

namespace ingot {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int64_t kFirstCpuSize = 384, kLastCpuSize = 3072;
// A product that takes this long on a CPU hides the cost of starting its threads.
constexpr double kLongEnough_s = 5e-4;

// Rows of the product, enough for every core of a CPU and every multiprocessor of a GPU.
int64_t first_size([[maybe_unused]] Device device) {
  if constexpr (kHasCuda) {
    if (device == Device::kCuda) return 64 * int64_t{cuda::devices().front().multiprocessors};
  }
  return kFirstCpuSize;
}

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

}  // namespace

double ProductPeak::repeat(int64_t size, double time_s) {
  const auto bytes = static_cast<size_t>(size * size) * sizeof(float) + Arena::kDeviceAlign;
  Arena arena("peak", 3 * bytes, memory_of(device_));
  const Tensor a = arena.alloc(dtype_, {size, size}), b = arena.alloc(dtype_, {size, size});
  const Tensor c = arena.alloc(dtype_, {size, size});
  Stream stream = make_stream(device_);
  allow_tf32(stream, is_tf32_);
  constexpr int kFewest = 3;
  constexpr MatmulForm kForms[] = {MatmulForm::kNT, MatmulForm::kNN, MatmulForm::kTN};
  double best_s = 1e9;
  const auto begin = Clock::now();
  for (int i = 0; i < kFewest || seconds_since(begin) < time_s; ++i) {
    const auto start = Clock::now();
    matmul(c, a, b, kForms[i % 3], false, stream);
    synchronize(stream);
    best_s = std::min(best_s, seconds_since(start));
    if (device_ == Device::kCpu && i + 1 >= kFewest && best_s < kLongEnough_s && size < kLastCpuSize / 2)
      break;
  }
  measured_s_ += seconds_since(begin);
  gflops_ = std::max(gflops_, 2e-9 * static_cast<double>(size * size * size) / best_s);
  return best_s;
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
