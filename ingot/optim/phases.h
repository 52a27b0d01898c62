// A curve over the length of a run, made of consecutive phases; the schedules of learning rate and
// momentum are such curves.
//
// A phase begins with the value at which its predecessor ended, so a curve has no jumps. With r in [0, 1]
// the fraction of the phase that has passed, a its first value and b its last:
//   constant      a
//   linear        a + (b - a) r
//   cosine        b + (a - b) (1 + cos(pi r)) / 2        (Loshchilov & Hutter 2016, arXiv:1608.03983)
//   exponential   a (b / a)^r
//   1-sqrt        b + (a - b) (1 - sqrt(r))              (Haegele et al. 2024, arXiv:2405.18392)
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace ingot {

enum class Curve { kConstant, kLinear, kCosine, kExponential, kOneMinusSqrt };

struct Phase {
  enum class Length {
    kPercent,  // `length` is in percent of the total
    kCount,    // `length` is in the unit of the total
    kRest,     // the length that the other phases leave; at most one phase of a list
  };
  Length kind = Length::kRest;
  double length = 0;
  Curve curve = Curve::kConstant;
  double to = 1;  // value at the end; ignored for a constant phase
  bool operator==(const Phase&) const = default;
};

class PhasedCurve {
 public:
  // `first` is the value at 0; the phases cover [0, total]. Before and after, the first and the last value
  // hold. Throws a kUsage error, which begins with `name`, if the phases are longer than the total, if two
  // of them are kRest, or if an exponential one has a value that is not positive. REQUIRES: total >= 0.
  PhasedCurve(const char* name, double first, std::span<const Phase> phases, double total);

  double at(double position) const;

  // Begin and end of phase i, in the unit of the total.
  double begin(size_t i) const { return segments_[i].begin; }
  double end(size_t i) const { return segments_[i].end; }
  size_t phases() const { return segments_.size(); }

 private:
  struct Segment {
    double begin, end, from, to;
    Curve curve;
  };
  double first_;
  std::vector<Segment> segments_;
};

}  // namespace ingot
