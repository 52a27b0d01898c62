// SpikeDetector: is a loss far above those of the steps before it? Median and median absolute deviation
// (Hampel 1974) of a window of losses:
//   score(x) = (x - median) / max(1.4826 MAD, 0.001 |median|)
// 1.4826 MAD is the standard deviation of normal noise. As long as fewer than half of the window are
// outliers, however large, median and MAD stay within what the others alone could give; what is not finite
// never enters.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace ingot {

class SpikeDetector {
 public:
  // REQUIRES: window >= 8.
  explicit SpikeDetector(int64_t window);

  // Robust deviations by which x lies above the median; infinite for what is not finite. 0 while the window
  // is less than half full. Allocates nothing.
  double score(double x);
  // Remembers x in place of the oldest; nothing if it is not finite.
  void add(double x);

  // The window, oldest first; what a checkpoint keeps.
  std::vector<double> values() const;
  void set_values(std::span<const double> values);

 private:
  std::vector<double> ring_, part_;
  size_t count_ = 0, next_ = 0;
};

}  // namespace ingot
