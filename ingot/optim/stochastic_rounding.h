// Stochastic rounding to bf16 (Gupta et al. 2015, arXiv:1502.02551): a number is rounded up with a
// probability equal to the fraction that is cut off, so the mean of many small updates survives without an
// f32 master. Element i uses half-word i of a Philox stream as its 16 random bits, for any number of threads.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>

#include "ingot/core/dtype.h"
#include "ingot/core/philox.h"
#include "ingot/ops/elementwise/random_blocks.h"
#include "ingot/optim/round_stochastically.h"

namespace ingot {

// Reads half-words [first, first + n) of the stream; first is a multiple of 256.
inline void random_halves(uint16_t* halves, const RandomBlocks& blocks, int64_t first, int64_t n) {
  constexpr int64_t kHalves = 2 * RandomBlocks::kWords;
  static_assert(256 % kHalves == 0, "a piece begins with a call's first word");
  uint32_t words[RandomBlocks::kWords];
  for (int64_t i = 0; i < n; i += kHalves) {
    blocks.fill(words, static_cast<uint64_t>((first + i) / 8));
    std::memcpy(halves + i, words, static_cast<size_t>(std::min(kHalves, n - i)) * sizeof(uint16_t));
  }
}

}  // namespace ingot
