// SpikeDetector scores how far a value, such as a loss, is above those of the steps before it, from the
// median and the median absolute deviation (Hampel 1974) of a window of values:
//   score(x) = (x - median) / max(1.4826 MAD, 0.001 |median|)
// 1.4826 MAD is the standard deviation of normal noise. While fewer than half of the values in the window
// are outliers, however large, median and MAD stay within the range of the other values. Values that are
// not finite never enter the window.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace ingot {

class SpikeDetector {
 public:
  // REQUIRES: window >= 8.
  explicit SpikeDetector(int64_t window);

  // Returns how many robust deviations x is above the median: infinity if x is not finite, 0 while the
  // window is less than half full. Does not allocate.
  double score(double x);
  // Returns the median of the newer half of a full window over that of the older half; nullopt before, or if
  // the latter is 0.
  std::optional<double> rise() const;
  // Replaces the oldest value with x; does nothing if x is not finite.
  void add(double x);

  // The window, oldest first, for checkpoints.
  std::vector<double> values() const;
  void set_values(std::span<const double> values);

 private:
  std::vector<double> ring_, part_;
  size_t count_ = 0, next_ = 0;
};

}  // namespace ingot
