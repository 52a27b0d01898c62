// The statistics of a sweep: intervals over seeds, paired differences, and the optimum of a curve.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

namespace ingot {

struct Interval {
  double low = 0, high = 0;
  bool contains(double value) const { return low <= value && value <= high; }
};

struct MeanInterval {
  double mean = 0;
  std::optional<Interval> interval;  // 95 %, from Student's t; nullopt for fewer than two values
};

// Returns the value that a t-distributed variable exceeds with probability 2.5 %. REQUIRES: freedom >= 1.
double t_975(int freedom);

// Returns the mean with its interval. REQUIRES: values is not empty.
MeanInterval mean_interval(std::span<const double> values);

// Returns the mean of the differences a[i] - b[i] with its interval. REQUIRES: equal sizes, not empty.
MeanInterval paired_difference(std::span<const double> a, std::span<const double> b);

// The minimum of a curve that was measured at a few places.
struct Optimum {
  double x = 0;                      // the vertex of a parabola, or the best of the places
  double y = 0;                      // its value there
  std::optional<Interval> interval;  // 95 % of x, by the jackknife over seeds; nullopt for one seed
  size_t best = 0;                   // index of the place with the lowest mean
  bool is_at_border = false;         // the best place is the first or the last: the minimum may lie beyond
  bool is_fitted = false;            // false if no parabola with a minimum near the best place fits
};

// Fits a parabola by least squares to the means over the seeds at the best place and up to two places on
// either side. x: places in ascending order, at least one; take their logarithms for a range over factors.
// y[seed][place]. The jackknife (Efron and Stein 1981) leaves out one seed at a time and fits the same places
// again. A y that is not finite counts as worse than any other, and its place enters no fit.
Optimum fit_optimum(std::span<const double> x, std::span<const std::vector<double>> y);

}  // namespace ingot
