#include "ingot/optim/phases.h"

#include <cmath>
#include <numbers>

#include "ingot/core/error.h"

namespace ingot {
namespace {

// Tolerance for phases whose lengths add up to the total except for rounding.
constexpr double kLengthSlack = 1e-9;

double value_at(Curve curve, double from, double to, double r) {
  switch (curve) {
    case Curve::kConstant:
      return from;
    case Curve::kLinear:
      return from + (to - from) * r;
    case Curve::kCosine:
      return to + (from - to) * 0.5 * (1 + std::cos(std::numbers::pi * r));
    case Curve::kExponential:
      return from * std::pow(to / from, r);
    case Curve::kOneMinusSqrt:
      return to + (from - to) * (1 - std::sqrt(r));
  }
  return from;
}

// Sum of the lengths of all phases but kRest.
double fixed_length(const char* name, std::span<const Phase> phases, double total) {
  double sum = 0;
  int rests = 0;
  for (const Phase& phase : phases) {
    if (phase.kind == Phase::Length::kRest) ++rests;
    if (phase.kind == Phase::Length::kPercent) sum += phase.length / 100 * total;
    if (phase.kind == Phase::Length::kCount) sum += phase.length;
  }
  if (rests > 1) fail(ErrorKind::kUsage, "{}: only one phase can be the rest, got {}", name, rests);
  if (sum > total * (1 + kLengthSlack))
    fail(ErrorKind::kUsage,
         "{}: the phases take {} of a run of {}; shorten them, or make one of them the rest", name, sum,
         total);
  return sum;
}

}  // namespace

PhasedCurve::PhasedCurve(const char* name, double first, std::span<const Phase> phases, double total)
    : first_(first) {
  INGOT_CHECK(total >= 0, "PhasedCurve: the total must not be negative, got {}", total);
  const double rest = total - fixed_length(name, phases, total);
  double position = 0, value = first;
  for (const Phase& phase : phases) {
    const double length = phase.kind == Phase::Length::kPercent ? phase.length / 100 * total
                          : phase.kind == Phase::Length::kCount ? phase.length
                                                                : rest;
    const double to = phase.curve == Curve::kConstant ? value : phase.to;
    if (phase.curve == Curve::kExponential && !(value > 0 && to > 0))
      fail(ErrorKind::kUsage, "{}: an exponential phase goes from {} to {}; both must be above 0", name,
           value, to);
    segments_.push_back({position, position + length, value, to, phase.curve});
    position += length;
    value = to;
  }
}

double PhasedCurve::at(double position) const {
  double value = first_;
  for (const Segment& segment : segments_) {
    if (position < segment.begin) return value;
    if (position < segment.end)
      return value_at(segment.curve, segment.from, segment.to,
                      (position - segment.begin) / (segment.end - segment.begin));
    value = segment.to;
  }
  return value;
}

}  // namespace ingot
