// MixOrder says which source each sample of a weighted mixture comes from. It is a pure function of the
// weights and the sample number.
//
// Among any first n samples, the number that comes from a source with share w (its weight divided by the sum
// of all) differs from w n by less than 1: the rule is Tijdeman's (1980, "The chairman assignment problem",
// Discrete Mathematics 32). Any window of samples therefore has its shares within 2 samples. The sequence
// repeats after a period: the smallest one with which all shares are whole numbers of samples, or
// kMaxSamples if there is none, with the shares rounded to it.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace ingot {

class MixOrder {
 public:
  static constexpr int64_t kMaxSamples = 65536;  // the longest period
  static constexpr int64_t kMaxSources = 1024;

  // weights: one per source, relative to each other. kUsage error if there are none or too many, if one is
  // not a finite number above 0, or if one is below 1 / kMaxSamples of the sum.
  explicit MixOrder(std::span<const double> weights);

  struct Place {
    int64_t source;
    int64_t number;  // the sample is the number-th of its source, from 0
  };
  // REQUIRES: sample >= 0.
  Place place(int64_t sample) const;
  // Returns how many of the first `samples` samples come from a source.
  int64_t taken(int64_t source, int64_t samples) const;

  int64_t period() const { return static_cast<int64_t>(table_->size()); }
  // Samples of a source in a period.
  int64_t count(int64_t source) const { return counts_[static_cast<size_t>(source)]; }
  double share(int64_t source) const {
    return static_cast<double>(count(source)) / static_cast<double>(period());
  }
  int64_t sources() const { return static_cast<int64_t>(counts_.size()); }

 private:
  struct Entry {
    int32_t source, number;  // within the period
  };
  std::vector<int64_t> counts_;
  std::shared_ptr<const std::vector<Entry>> table_;  // shared by copies
};

}  // namespace ingot
