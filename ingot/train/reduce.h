// Seam: sums and maxima of a few numbers over all ranks (loss, token counts, squared norms, flags). Alone, a
// number is its own sum.
#pragma once

#include <span>

namespace ingot {

class Reducer {
 public:
  virtual ~Reducer() = default;
  virtual void sum([[maybe_unused]] std::span<double> values) {}
  virtual void max([[maybe_unused]] std::span<double> values) {}
  virtual void barrier() {}
};

}  // namespace ingot
