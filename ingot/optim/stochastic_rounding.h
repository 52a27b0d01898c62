// Stochastic rounding to bf16 (Gupta et al. 2015, arXiv:1502.02551): a number is rounded up with a
// probability equal to the fraction that is cut off, so the mean of many small updates survives without an
// f32 master. Element i of a parameter uses half-word i of a Philox stream as its 16 random bits, for any
// number of threads and on whichever rank it lies.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>

#include "ingot/core/dtype.h"
#include "ingot/core/philox.h"
#include "ingot/ops/random_blocks.h"
#include "ingot/optim/round_stochastically.h"
#include "ingot/optim/shard_rows.h"

namespace ingot {

// Reads half-words [first, first + n) of the stream.
inline void random_halves(uint16_t* halves, const RandomBlocks& blocks, int64_t first, int64_t n) {
  constexpr int64_t kHalves = 2 * RandomBlocks::kWords, kInBlock = 8;
  uint32_t words[RandomBlocks::kWords];
  int64_t count = 0;
  for (int64_t i = 0; i < n; i += count) {
    const int64_t skipped = (first + i) % kInBlock;
    count = std::min(kHalves - skipped, n - i);
    blocks.fill(words, static_cast<uint64_t>((first + i) / kInBlock));
    std::memcpy(halves + i, reinterpret_cast<const char*>(words) + skipped * 2,
                static_cast<size_t>(count) * sizeof(uint16_t));
  }
}

// Reads the random bits of elements [i, i + n) of a parameter or a shard in update t.
inline void rounding_bits(uint16_t* bits, const OptimParam& p, int64_t i, int64_t n, int64_t t) {
  RandomKey key = p.rounding;
  key.step = static_cast<uint64_t>(t);
  const RandomBlocks blocks(key);
  if (!p.is_scattered) return random_halves(bits, blocks, p.begin() + i, n);
  for_each_run(p, i, n, [&](int64_t j, int64_t row, int64_t column, int64_t count) {
    random_halves(bits + j, blocks, row * p.columns() + column, count);
  });
}

}  // namespace ingot
