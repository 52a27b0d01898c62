#include "ingot/data/sampler.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
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

constexpr uint32_t kStreamsPerPart = 4;

std::vector<double> weights_of(std::span<const Sampler::Source> sources) {
  std::vector<double> weights;
  for (const Sampler::Source& source : sources) weights.push_back(source.weight);
  return weights;
}

RandomKey key(uint64_t seed, uint32_t streams, Stream stream, uint64_t epoch) {
  return {.seed = seed, .purpose = Purpose::kShuffle, .stream = streams + stream, .step = epoch};
}
}  // namespace

Sampler::Sampler(SampleOrder order, uint64_t seed, int64_t tokens, int64_t context)
    : Sampler(order, seed, std::array{Source{.tokens = tokens}}, context) {}

Sampler::Sampler(SampleOrder order, uint64_t seed, std::span<const Source> sources, int64_t context)
    : order_(order), seed_(seed), context_(context), mix_(weights_of(sources)) {
  INGOT_CHECK(context >= 1, "Sampler: context must be at least 1, got {}", context);
  int64_t begin = 0;
  for (const Source& source : sources) {
    const auto number = static_cast<uint32_t>(parts_.size());
    if (source.tokens < context + 1)
      fail(ErrorKind::kData,
           "{} has {} tokens, one window of context {} needs {}; give more text or a shorter context",
           sources.size() == 1 ? "the text" : fmt::format("source {} of the mixture", number + 1),
           source.tokens, context, context + 1);
    int64_t windows = (source.tokens - 1) / context;
    if (order == SampleOrder::kEpochs && !source.is_packed) windows = std::max<int64_t>(1, windows - 1);
    const int half_bits = (std::bit_width(static_cast<uint64_t>(windows - 1)) + 1) / 2;
    parts_.push_back({begin, source.tokens, windows, source.is_packed, half_bits, number * kStreamsPerPart});
    begin += source.tokens;
  }
}

int64_t Sampler::start(int64_t sample) const {
  INGOT_CHECK(sample >= 0, "Sampler::start: sample must be at least 0, got {}", sample);
  const MixOrder::Place place = mix_.place(sample);
  const Part& part = parts_[static_cast<size_t>(place.source)];
  if (order_ == SampleOrder::kRandom)
    return part.begin + random_start(part, static_cast<uint64_t>(place.number));
  const auto epoch = static_cast<uint64_t>(place.number / part.windows);
  const auto window = static_cast<uint64_t>(place.number % part.windows);
  return part.begin + offset(part, epoch) + static_cast<int64_t>(permute(part, epoch, window)) * context_;
}

int64_t Sampler::random_start(const Part& part, uint64_t sample) const {
  const Philox4 words = random_block(key(seed_, part.streams, kRandomStart, 0), sample);
  return part.is_packed ? uniform_below(words, part.windows) * context_
                        : uniform_below(words, part.tokens - context_);
}

int64_t Sampler::offset(const Part& part, uint64_t epoch) const {
  if (part.is_packed) return 0;
  const int64_t spare_tokens = part.tokens - 1 - part.windows * context_;
  return uniform_below(random_block(key(seed_, part.streams, kEpochOffset, epoch), 0), spare_tokens + 1);
}

uint64_t Sampler::permute(const Part& part, uint64_t epoch, uint64_t window) const {
  if (part.half_bits == 0) return window;
  const uint64_t mask = (uint64_t{1} << part.half_bits) - 1;
  const RandomKey order_key = key(seed_, part.streams, kEpochOrder, epoch);
  do {
    uint64_t left = window >> part.half_bits, right = window & mask;
    for (uint64_t round = 0; round < kFeistelRounds; ++round) {
      const uint64_t mixed = left ^ (random_block(order_key, round << 56 | right)[0] & mask);
      left = right;
      right = mixed;
    }
    window = left << part.half_bits | right;
  } while (window >= static_cast<uint64_t>(part.windows));
  return window;
}

}  // namespace ingot
