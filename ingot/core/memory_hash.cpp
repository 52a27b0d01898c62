#include "ingot/core/memory_hash.h"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "ingot/core/parallel.h"

namespace ingot {
namespace {

uint64_t sum_of_words(const std::byte* bytes, int64_t begin, int64_t end) {
  uint64_t sum = 0;
  for (int64_t i = begin; i < end; ++i) {
    uint32_t word;
    std::memcpy(&word, bytes + 4 * i, sizeof word);
    sum += static_cast<uint64_t>(word) * static_cast<uint32_t>(2 * i + 1);
  }
  return sum;
}

}  // namespace

uint64_t memory_hash(std::span<const std::byte> bytes) {
  const auto words = static_cast<int64_t>(bytes.size() / 4);
  std::atomic<uint64_t> sum = 0;  // the order of additions modulo 2^64 does not matter
  parallel_ranges(words, kGrain, [&](int, int64_t begin, int64_t end) {
    sum.fetch_add(sum_of_words(bytes.data(), begin, end), std::memory_order_relaxed);
  });
  uint32_t rest = 0;
  if (const size_t left = bytes.size() % 4) std::memcpy(&rest, bytes.data() + 4 * words, left);
  return sum + static_cast<uint64_t>(rest) * static_cast<uint32_t>(2 * words + 1);
}

}  // namespace ingot
