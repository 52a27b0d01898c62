#include "ingot/ops/random_normal.h"

#include <algorithm>

#include "ingot/core/parallel.h"
#include "ingot/ops/random_blocks.h"

namespace ingot {
namespace {

constexpr int64_t kGrainBlocks = 1 << 10;  // minimum number of Philox blocks per thread

// y (count) = the numbers of one batch of blocks, without the first `skip` of them.
void fill_batch(float* y, int64_t skip, int64_t count, float std, const RandomBlocks& random,
                uint64_t first_block) {
  uint32_t words[RandomBlocks::kWords];
  float normals[RandomBlocks::kWords];
  random.fill(words, first_block);
#pragma omp simd
  for (int i = 0; i < RandomBlocks::kWords / 2; ++i) {
    const NormalPair pair = normal_pair(words[2 * i], words[2 * i + 1]);
    normals[2 * i] = std * pair.first;
    normals[2 * i + 1] = std * pair.second;
  }
  std::copy_n(normals + skip, count, y);
}

}  // namespace

void fill_normal(const Tensor& y, float std, const RandomKey& key, uint64_t first_index) {
  INGOT_CHECK(y.rank() == 1 && y.is_contiguous(), "fill_normal: y must be (n) and contiguous, got {}",
              y.shape.to_string());
  check_tensor(y, DType::f32, y.shape, "fill_normal: y");
  parallel_for(y.elements(), 4 * kGrainBlocks, [&](int64_t begin, int64_t end) {
    const RandomBlocks random(key);
    while (begin < end) {
      const uint64_t index = first_index + static_cast<uint64_t>(begin);
      const auto skip = static_cast<int64_t>(index % 4);
      const int64_t count = std::min<int64_t>(RandomBlocks::kWords - skip, end - begin);
      fill_batch(y.as<float>() + begin, skip, count, std, random, index / 4);
      begin += count;
    }
  });
}

}  // namespace ingot
