#include "ingot/ops/random_normal.h"

#include <algorithm>

#include "ingot/core/parallel.h"
#include "ingot/ops/random_blocks.h"

namespace ingot {
namespace {

constexpr int64_t kGrainBlocks = 1 << 10;  // Philox blocks a thread takes at least

// Elements 4 * first_block ... of y, as many of one batch of blocks as count says.
void fill_batch(float* y, int64_t count, float std, const RandomBlocks& random, uint64_t first_block) {
  uint32_t words[RandomBlocks::kWords];
  float normals[RandomBlocks::kWords];
  random.fill(words, first_block);
#pragma omp simd
  for (int i = 0; i < RandomBlocks::kWords / 2; ++i) {
    const NormalPair pair = normal_pair(words[2 * i], words[2 * i + 1]);
    normals[2 * i] = std * pair.first;
    normals[2 * i + 1] = std * pair.second;
  }
  std::copy_n(normals, count, y);
}

}  // namespace

void fill_normal(const Tensor& y, float std, const RandomKey& key) {
  INGOT_CHECK(y.rank() == 1 && y.is_contiguous(), "fill_normal: y must be (n) and contiguous, got {}",
              y.shape.to_string());
  check_tensor(y, DType::f32, y.shape, "fill_normal: y");
  const int64_t n = y.elements();
  parallel_for((n + 3) / 4, kGrainBlocks, [&](int64_t begin, int64_t end) {
    const RandomBlocks random(key);
    for (int64_t block = begin; block < end; block += RandomBlocks::kBlocks) {
      const int64_t blocks = std::min<int64_t>(RandomBlocks::kBlocks, end - block);
      fill_batch(y.as<float>() + 4 * block, std::min(4 * blocks, n - 4 * block), std, random,
                 static_cast<uint64_t>(block));
    }
  });
}

}  // namespace ingot
