#include "ingot/train/peak.h"

#include <algorithm>
#include <chrono>

#include "ingot/core/arena.h"
#include "ingot/core/copy.h"
#include "ingot/core/cuda_device.h"
#include "ingot/ops/matmul.h"
#include "ingot/ops/tf32.h"

namespace ingot {
namespace {

// Rows of the product: some for every core of a CPU's, and for every multiprocessor of a GPU's.
int64_t product_size([[maybe_unused]] Device device) {
  if constexpr (kHasCuda) {
    if (device == Device::kCuda) return 64 * int64_t{cuda::devices().front().multiprocessors};
  }
  return 768;
}

}  // namespace

double measure_product_peak(DType dtype, Device device, bool is_tf32) {
  constexpr int kTries = 8;
  const int64_t size = product_size(device);
  const auto bytes = static_cast<size_t>(size * size) * sizeof(float) + Arena::kDeviceAlign;
  Arena arena("peak", 3 * bytes, memory_of(device));
  const Tensor a = arena.alloc(dtype, {size, size}), b = arena.alloc(dtype, {size, size});
  const Tensor c = arena.alloc(dtype, {size, size});
  Stream stream = make_stream(device);
  allow_tf32(stream, is_tf32);
  double best_s = 1e9;
  for (int i = 0; i < kTries; ++i) {
    const auto start = std::chrono::steady_clock::now();
    matmul(c, a, b, MatmulForm::kNT, false, stream);
    synchronize(stream);
    best_s =
        std::min(best_s, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  return 2e-9 * static_cast<double>(size * size * size) / best_s;
}

}  // namespace ingot
