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
#pragma once

#include <cstdint>

namespace ingot {

enum class SampleOrder { kRandom, kEpochs };

class Sampler {
 public:
  // REQUIRES: context >= 1. kData error if tokens < context + 1, because no window fits.
  Sampler(SampleOrder order, uint64_t seed, int64_t tokens, int64_t context);

  // Returns the position of the first token of the sample's window. REQUIRES: sample >= 0.
  int64_t start(int64_t sample) const;

  // Windows per epoch (kEpochs). For kRandom, the number of adjacent windows that fit, for reports only.
  int64_t windows_per_epoch() const { return windows_; }
  int64_t context() const { return context_; }

 private:
  int64_t random_start(uint64_t sample) const;
  int64_t offset(uint64_t epoch) const;
  uint64_t permute(uint64_t epoch, uint64_t window) const;

  SampleOrder order_;
  uint64_t seed_;
  int64_t tokens_, context_;
  int64_t windows_;
  int half_bits_;  // the Feistel network permutes 2 * half_bits_ bits, at most 4 * windows_ values
};

}  // namespace ingot
