// The global sample order: which window of the token stream sample number i is, as a pure function of
// (seed, i). Batch size, accumulation, readers and restarts do not appear in it: sample i is the same window
// in every run, and resuming needs one counter.
//
// A window that starts at s reads tokens [s, s + context]: context inputs, each with its next token as
// target.
//
// kRandom: starts are independent and uniform in [0, tokens - context - 1], as nanoGPT's torch.randint.
// kEpochs: epoch e = i / windows_per_epoch() visits windows_per_epoch() windows that lie side by side (each
//   input token once) in an order of its own, and shifts all of them by an offset of its own, so that windows
//   differ from epoch to epoch. The order is a keyed bijection (a Feistel network over Philox words with
//   cycle walking; Black & Rogaway 2002, "Ciphers with arbitrary finite domains"): O(1) memory, any i at
//   once. There is one window less than would fit, which leaves room for the shift: the up to 2*context
//   tokens at the two ends are in the epoch or not by chance.
#pragma once

#include <cstdint>

namespace ingot {

enum class SampleOrder { kRandom, kEpochs };

class Sampler {
 public:
  // REQUIRES: context >= 1. kData error if tokens < context + 1: no window fits.
  Sampler(SampleOrder order, uint64_t seed, int64_t tokens, int64_t context);

  // First token of sample `sample`'s window. REQUIRES: sample >= 0.
  int64_t start(int64_t sample) const;

  // Windows of one epoch (kEpochs); for kRandom the number of windows that fit side by side, for reports.
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
  int half_bits_;  // the Feistel network works on 2 * half_bits_ bits, at most 4 * windows_ values
};

}  // namespace ingot
