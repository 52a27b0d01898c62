#include "ingot/train/peak.h"

#include <algorithm>
#include <chrono>

#include "ingot/core/arena.h"
#include "ingot/ops/matmul.h"

namespace ingot {

double measure_product_peak(DType dtype) {
  constexpr int64_t kSize = 768;
  constexpr int kTries = 8;
  Arena arena("peak", 3 * kSize * kSize * sizeof(float) + 3 * Arena::kAlign);
  const Tensor a = arena.alloc(dtype, {kSize, kSize}), b = arena.alloc(dtype, {kSize, kSize});
  const Tensor c = arena.alloc(dtype, {kSize, kSize});
  Stream stream;
  double best_s = 1e9;
  for (int i = 0; i < kTries; ++i) {
    const auto start = std::chrono::steady_clock::now();
    matmul(c, a, b, MatmulForm::kNT, false, stream);
    best_s =
        std::min(best_s, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  return 2e-9 * static_cast<double>(kSize * kSize * kSize) / best_s;
}

}  // namespace ingot
