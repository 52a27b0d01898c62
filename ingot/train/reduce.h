// Seam: what ranks tell each other beside weights and activations: sums and maxima of a few numbers (loss,
// token counts, squared norms, flags), and short texts. Every rank gets the same bits. Alone, a number is its
// own sum.
#pragma once

#include <span>
#include <string>

namespace ingot {

class Reducer {
 public:
  virtual ~Reducer() = default;
  virtual void sum([[maybe_unused]] std::span<double> values) {}
  virtual void max([[maybe_unused]] std::span<double> values) {}
  // Everyone's text becomes the one of rank `from`; returns when all have it.
  virtual void broadcast([[maybe_unused]] std::string& text, [[maybe_unused]] int from) {}
  virtual int rank() const { return 0; }
  virtual int ranks() const { return 1; }
};

}  // namespace ingot
