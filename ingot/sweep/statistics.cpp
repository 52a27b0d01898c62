#include "ingot/sweep/statistics.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "ingot/core/error.h"

namespace ingot {
namespace {

// The regularised incomplete beta function I_x(a, b), by its continued fraction (Lentz's method; Press et
// al., Numerical Recipes, 6.4).
double incomplete_beta(double a, double b, double x) {
  if (x <= 0 || x >= 1) return x <= 0 ? 0 : 1;
  if (x > (a + 1) / (a + b + 2)) return 1 - incomplete_beta(b, a, 1 - x);
  constexpr double kTiny = 1e-300;
  double c = 1, d = 1 / std::max(kTiny, 1 - (a + b) * x / (a + 1)), fraction = d;
  for (int m = 1; m < 300; ++m) {
    for (const double term : {m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
                              -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))}) {
      const double below = 1 + term * d;
      d = 1 / (std::abs(below) < kTiny ? kTiny : below);
      c = 1 + term / c;
      if (std::abs(c) < kTiny) c = kTiny;
      fraction *= c * d;
    }
    if (std::abs(c * d - 1) < 1e-14) break;
  }
  const double front =
      a * std::log(x) + b * std::log1p(-x) + std::lgamma(a + b) - std::lgamma(a) - std::lgamma(b);
  return std::exp(front) * fraction / a;
}

double mean_of(std::span<const double> values) {
  double sum = 0;
  for (const double value : values) sum += value;
  return sum / static_cast<double>(values.size());
}

struct Parabola {
  double a = 0, b = 0, c = 0;  // a + b x + c x^2
};

// The least-squares parabola, by Cramer's rule on the normal equations; x should be near 0 for precision.
Parabola fit_parabola(std::span<const double> x, std::span<const double> y) {
  std::array<double, 5> s{};  // sums of the powers of x
  std::array<double, 3> t{};  // sums of y times the powers of x
  for (size_t i = 0; i < x.size(); ++i)
    for (double power = 1; const size_t k : {0, 1, 2, 3, 4}) {
      s[k] += power;
      if (k < 3) t[k] += power * y[i];
      power *= x[i];
    }
  const auto determinant = [](const std::array<std::array<double, 3>, 3>& m) {
    return m[0][0] * (m[1][1] * m[2][2] - m[1][2] * m[2][1]) -
           m[0][1] * (m[1][0] * m[2][2] - m[1][2] * m[2][0]) +
           m[0][2] * (m[1][0] * m[2][1] - m[1][1] * m[2][0]);
  };
  std::array<std::array<double, 3>, 3> rows{{{s[0], s[1], s[2]}, {s[1], s[2], s[3]}, {s[2], s[3], s[4]}}};
  const double all = determinant(rows);
  std::array<double, 3> solution{};
  for (size_t k = 0; k < 3; ++k) {
    auto replaced = rows;
    for (size_t r = 0; r < 3; ++r) replaced[r][k] = t[r];
    solution[k] = determinant(replaced) / all;
  }
  return {solution[0], solution[1], solution[2]};
}

// The vertex of the parabola through the places [first, last], if it is a minimum between them.
std::optional<double> vertex(std::span<const double> x, std::span<const double> y, double* value = nullptr) {
  const double centre = mean_of(x);
  std::vector<double> moved(x.begin(), x.end());
  for (double& v : moved) v -= centre;
  const Parabola p = fit_parabola(moved, y);
  if (!(p.c > 0)) return std::nullopt;
  const double at = -p.b / (2 * p.c);
  if (at < moved.front() || at > moved.back()) return std::nullopt;
  if (value) *value = p.a + p.b * at + p.c * at * at;
  return at + centre;
}

// The mean over the seeds at every place, leaving one seed out (or none, if left_out is y.size()).
std::vector<double> means(std::span<const std::vector<double>> y, size_t places, size_t left_out) {
  std::vector<double> mean(places);
  for (size_t k = 0; k < places; ++k) {
    double sum = 0, count = 0;
    for (size_t seed = 0; seed < y.size(); ++seed) {
      if (seed == left_out) continue;
      sum += y[seed][k];
      count += 1;
    }
    mean[k] = std::isfinite(sum) ? sum / count : std::numeric_limits<double>::infinity();
  }
  return mean;
}

}  // namespace

double t_975(int freedom) {
  INGOT_CHECK(freedom >= 1, "t_975: {} degrees of freedom", freedom);
  // P(|T| > t) = I_{n / (n + t^2)}(n / 2, 1 / 2), which falls with t.
  const double n = freedom;
  double low = 0, high = 13;  // t_975(1) is 12.7
  for (int i = 0; i < 60; ++i) {
    const double t = (low + high) / 2;
    (incomplete_beta(n / 2, 0.5, n / (n + t * t)) > 0.05 ? low : high) = t;
  }
  return (low + high) / 2;
}

MeanInterval mean_interval(std::span<const double> values) {
  INGOT_CHECK(!values.empty(), "mean_interval: there are no values");
  MeanInterval result{.mean = mean_of(values), .interval = {}};
  if (values.size() < 2 || !std::isfinite(result.mean)) return result;
  double squares = 0;
  for (const double value : values) squares += (value - result.mean) * (value - result.mean);
  const auto n = static_cast<double>(values.size());
  const double half = t_975(static_cast<int>(values.size()) - 1) * std::sqrt(squares / (n - 1) / n);
  result.interval = Interval{result.mean - half, result.mean + half};
  return result;
}

MeanInterval paired_difference(std::span<const double> a, std::span<const double> b) {
  INGOT_CHECK(a.size() == b.size(), "paired_difference: {} and {} values", a.size(), b.size());
  std::vector<double> differences(a.begin(), a.end());
  for (size_t i = 0; i < b.size(); ++i) differences[i] -= b[i];
  return mean_interval(differences);
}

Optimum fit_optimum(std::span<const double> x, std::span<const std::vector<double>> y) {
  INGOT_CHECK(!x.empty() && !y.empty(), "fit_optimum: {} places, {} seeds", x.size(), y.size());
  const std::vector<double> mean = means(y, x.size(), y.size());
  Optimum optimum;
  optimum.best = static_cast<size_t>(std::ranges::min_element(mean) - mean.begin());
  optimum.x = x[optimum.best];
  optimum.y = mean[optimum.best];
  optimum.is_at_border = optimum.best == 0 || optimum.best + 1 == x.size();
  constexpr size_t kBeside = 2;
  size_t first = optimum.best, last = optimum.best;
  while (first > 0 && optimum.best - first < kBeside && std::isfinite(mean[first - 1])) --first;
  while (last + 1 < x.size() && last - optimum.best < kBeside && std::isfinite(mean[last + 1])) ++last;
  if (optimum.is_at_border || first == optimum.best || last == optimum.best) return optimum;
  const size_t places = last - first + 1;
  const std::span<const double> near = x.subspan(first, places);
  const std::optional<double> at = vertex(near, std::span(mean).subspan(first, places), &optimum.y);
  if (!at) return optimum;
  optimum.x = *at;
  optimum.is_fitted = true;
  if (y.size() < 2) return optimum;

  const auto seeds = static_cast<double>(y.size());
  std::vector<double> without;
  for (size_t left_out = 0; left_out < y.size(); ++left_out) {
    const std::vector<double> rest = means(y, x.size(), left_out);
    const auto one = vertex(near, std::span(rest).subspan(first, places));
    if (!one) return optimum;
    without.push_back(*one);
  }
  double squares = 0;
  const double centre = mean_of(without);
  for (const double value : without) squares += (value - centre) * (value - centre);
  const double half = t_975(static_cast<int>(y.size()) - 1) * std::sqrt((seeds - 1) / seeds * squares);
  optimum.interval = Interval{*at - half, *at + half};
  return optimum;
}

}  // namespace ingot
