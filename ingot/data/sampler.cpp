#include "ingot/data/sampler.h"

#include <algorithm>
#include <bit>

#include "ingot/core/error.h"
#include "ingot/core/philox.h"

namespace ingot {
namespace {
enum Stream : uint32_t { kRandomStart = 0, kEpochOffset = 1, kEpochOrder = 2 };
constexpr int kFeistelRounds = 6;

// Maps 64 random bits to a uniform integer in [0, n); the bias is below n / 2^64.
int64_t uniform_below(const Philox4& words, int64_t n) {
  const uint64_t bits = words[0] | uint64_t{words[1]} << 32;
  return static_cast<int64_t>((static_cast<unsigned __int128>(bits) * static_cast<uint64_t>(n)) >> 64);
}

RandomKey key(uint64_t seed, Stream stream, uint64_t epoch) {
  return {.seed = seed, .purpose = Purpose::kShuffle, .stream = stream, .step = epoch};
}
}  // namespace

Sampler::Sampler(SampleOrder order, uint64_t seed, int64_t tokens, int64_t context)
    : order_(order), seed_(seed), tokens_(tokens), context_(context) {
  INGOT_CHECK(context >= 1, "Sampler: context must be at least 1, got {}", context);
  if (tokens < context + 1)
    fail(ErrorKind::kData,
         "the text has {} tokens, one window of context {} needs {}; give more text or a shorter context",
         tokens, context, context + 1);
  windows_ = (tokens - 1) / context;
  if (order == SampleOrder::kEpochs) windows_ = std::max<int64_t>(1, windows_ - 1);
  half_bits_ = (std::bit_width(static_cast<uint64_t>(windows_ - 1)) + 1) / 2;
}

int64_t Sampler::start(int64_t sample) const {
  INGOT_CHECK(sample >= 0, "Sampler::start: sample must be at least 0, got {}", sample);
  if (order_ == SampleOrder::kRandom) return random_start(static_cast<uint64_t>(sample));
  const auto epoch = static_cast<uint64_t>(sample / windows_);
  const auto window = static_cast<uint64_t>(sample % windows_);
  return offset(epoch) + static_cast<int64_t>(permute(epoch, window)) * context_;
}

int64_t Sampler::random_start(uint64_t sample) const {
  return uniform_below(random_block(key(seed_, kRandomStart, 0), sample), tokens_ - context_);
}

int64_t Sampler::offset(uint64_t epoch) const {
  const int64_t spare_tokens = tokens_ - 1 - windows_ * context_;
  return uniform_below(random_block(key(seed_, kEpochOffset, epoch), 0), spare_tokens + 1);
}

uint64_t Sampler::permute(uint64_t epoch, uint64_t window) const {
  if (half_bits_ == 0) return window;
  const uint64_t mask = (uint64_t{1} << half_bits_) - 1;
  const RandomKey order_key = key(seed_, kEpochOrder, epoch);
  do {
    uint64_t left = window >> half_bits_, right = window & mask;
    for (uint64_t round = 0; round < kFeistelRounds; ++round) {
      const uint64_t mixed = left ^ (random_block(order_key, round << 56 | right)[0] & mask);
      left = right;
      right = mixed;
    }
    window = left << half_bits_ | right;
  } while (window >= static_cast<uint64_t>(windows_));
  return window;
}

}  // namespace ingot
