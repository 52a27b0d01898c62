// Mistakes that the simulation must find, planted in small kernels and sequences of the host.
#pragma once

#include <ostream>
#include <span>

namespace simulated_cuda {

struct Mistake {
  const char* name;   // the name of the test
  const char* found;  // what the simulation must say about it
  void (*make)();
};
inline void PrintTo(const Mistake& mistake, std::ostream* out) { *out << mistake.name; }
std::span<const Mistake> mistakes();

// The same kernels and sequences without the mistakes.
void make_none();

}  // namespace simulated_cuda
