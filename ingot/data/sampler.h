// Sampler defines the global sample order: it maps sample number i to a window of the token stream, as a
// pure function of (seed, i). Batch size, accumulation, number of readers and restarts do not affect it,
// so sample i is the same window in every run, and resuming needs a single counter.
//
// A window that starts at s reads the tokens [s, s + context]: context inputs, each with its next token
// as target.
//
// kRandom: starts are independent and uniform in [0, tokens - context - 1], like nanoGPT's torch.randint.
// kEpochs: epoch e = i / windows_per_epoch() visits windows_per_epoch() adjacent windows (each input token
//   once). Every epoch has its own order and shifts all windows by its own offset, so that windows differ
//   from epoch to epoch. The order is a keyed bijection (a Feistel network over Philox words with cycle
//   walking; Black & Rogaway 2002, "Ciphers with arbitrary finite domains"): it needs O(1) memory and gives
//   any i directly. An epoch has one window less than would fit, which leaves room for the shift; therefore
//   up to 2*context tokens at the two ends of the stream are in the epoch or not by chance.
//
// A packed source (TokenSource::is_masked) is cut into windows before: they begin at multiples of the
// context. Then kRandom draws one of them, and an epoch visits all of them, without shift.
//
// A mixture has several sources, one behind the other in the stream. MixOrder says which source a sample
// comes from, and each source has an order of its own, so a window never crosses from one source to the next.
// One source with any weight has the order of a stream without mixture.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "ingot/data/mix_order.h"

namespace ingot {

enum class SampleOrder { kRandom, kEpochs };

class Sampler {
 public:
  // REQUIRES: context >= 1. kData error if tokens < context + 1, because no window fits.
  Sampler(SampleOrder order, uint64_t seed, int64_t tokens, int64_t context);

  // The sources of a mixture, in the order in which they follow each other in the stream.
  struct Source {
    int64_t tokens = 0;
    double weight = 1;
    bool is_packed = false;
  };
  // Throws the errors of MixOrder, and a kData error if no window fits into a source.
  Sampler(SampleOrder order, uint64_t seed, std::span<const Source> sources, int64_t context);

  // Returns the position of the first token of the sample's window. REQUIRES: sample >= 0.
  int64_t start(int64_t sample) const;

  // Windows per epoch of a source (kEpochs). For kRandom, the number of adjacent windows that fit, for
  // reports only.
  int64_t windows_per_epoch(int64_t source = 0) const { return parts_[static_cast<size_t>(source)].windows; }
  int64_t context() const { return context_; }
  const MixOrder& mix() const { return mix_; }

 private:
  struct Part {
    int64_t begin, tokens;  // in the stream
    int64_t windows;
    bool is_packed;
    int half_bits;     // the Feistel network permutes 2 * half_bits bits, at most 4 * windows values
    uint32_t streams;  // its random numbers have the streams of this number and above
  };
  int64_t random_start(const Part& part, uint64_t sample) const;
  int64_t offset(const Part& part, uint64_t epoch) const;
  uint64_t permute(const Part& part, uint64_t epoch, uint64_t window) const;

  SampleOrder order_;
  uint64_t seed_;
  int64_t context_;
  MixOrder mix_;
  std::vector<Part> parts_;
};

}  // namespace ingot
