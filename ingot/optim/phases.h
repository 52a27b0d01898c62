// A curve over the length of a run, put together of phases that lie end to end: what every schedule of a
// learning rate, a momentum or anything else is drawn with.
//
// A phase begins with the value that its predecessor ended with, so that a curve has no jumps. With r in
// [0, 1] the part of the phase that is over, a its first value and b its last:
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
    kPercent,  // `length` is in per cent of the whole
    kCount,    // `length` is in the unit of the whole
    kRest,     // what the other phases leave; at most one phase of a list
  };
  Length kind = Length::kRest;
  double length = 0;
  Curve curve = Curve::kConstant;
  double to = 1;  // value at its end; of a constant phase: not read
  bool operator==(const Phase&) const = default;
};

class PhasedCurve {
 public:
  // `first` is the value at 0; the phases cover [0, total]. Before and after, the first and the last value
  // hold. kUsage error, which begins with `name`, if the phases are longer than the total, two of them are
  // the rest, or an exponential one touches a value that is not positive. REQUIRES: total >= 0.
  PhasedCurve(const char* name, double first, std::span<const Phase> phases, double total);

  double at(double position) const;

  // Where phase i begins and ends, in the unit of the total.
  double begin(size_t i) const { return pieces_[i].begin; }
  double end(size_t i) const { return pieces_[i].end; }
  size_t phases() const { return pieces_.size(); }

 private:
  struct Piece {
    double begin, end, from, to;
    Curve curve;
  };
  double first_;
  std::vector<Piece> pieces_;
};

}  // namespace ingot
