// Reducer is the interface for small messages between ranks: sums and maxima of a few numbers (loss,
// token counts, squared norms, flags) and short texts. Every rank gets bit-identical results. On a single
// rank every function is a no-op.
#pragma once

#include <span>
#include <string>

namespace ingot {

class Reducer {
 public:
  virtual ~Reducer() = default;
  virtual void sum([[maybe_unused]] std::span<double> values) {}
  virtual void max([[maybe_unused]] std::span<double> values) {}
  // Sends rank `from`'s text to all ranks; returns when all have it.
  virtual void broadcast([[maybe_unused]] std::string& text, [[maybe_unused]] int from) {}
  virtual int rank() const { return 0; }
  virtual int ranks() const { return 1; }
};

}  // namespace ingot
