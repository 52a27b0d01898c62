#include "ingot/core/trace.h"

namespace ingot {

void Trace::add(std::string_view phase, double time_s) {
  for (Phase& p : phases_)
    if (p.name == phase) {
      p.time_s += time_s;
      ++p.calls;
      return;
    }
  phases_.push_back({std::string(phase), time_s, 1});
}

double Trace::time_s(std::string_view phase) const {
  for (const Phase& p : phases_)
    if (p.name == phase) return p.time_s;
  return 0;
}

}  // namespace ingot
