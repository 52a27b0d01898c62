// Implements smoothed() of svg_plot.h.
#include <algorithm>
#include <cmath>

#include "ingot/formats/chart/svg_plot.h"

namespace ingot {
namespace {

// Sums over the finite values of y from some index to the end; x is the distance from the last index.
struct TailSums {
  double n = 0, x = 0, xx = 0, y = 0, xy = 0;
  void add(double at, double value) {
    n += 1;
    x += at;
    xx += at * at;
    y += value;
    xy += at * value;
  }
  // The value at x of the line fitted by least squares.
  double line(double at) const {
    const double spread = n * xx - x * x;
    if (spread <= 0) return y / n;
    const double slope = (n * xy - x * y) / spread;
    return (y - slope * x) / n + slope * at;
  }
};

}  // namespace

std::vector<double> smoothed(std::span<const double> y, double half_width_points) {
  const auto size = static_cast<std::ptrdiff_t>(y.size());
  const auto widest =
      static_cast<std::ptrdiff_t>(std::clamp(half_width_points, 0.0, static_cast<double>(size)));
  std::vector<double> sum(y.size() + 1, 0.0), count(y.size() + 1, 0.0), out(y.begin(), y.end());
  for (size_t i = 0; i < y.size(); ++i) {
    sum[i + 1] = sum[i] + (std::isfinite(y[i]) ? y[i] : 0);
    count[i + 1] = count[i] + (std::isfinite(y[i]) ? 1 : 0);
  }
  TailSums tail;
  std::ptrdiff_t tail_begin = size;
  for (std::ptrdiff_t i = size - 1; i >= 0; --i) {
    if (!std::isfinite(y[static_cast<size_t>(i)])) continue;
    const std::ptrdiff_t half = std::min(widest, (i + 3) / 4);
    if (i + half < size) {
      const auto begin = static_cast<size_t>(std::max<std::ptrdiff_t>(i - half, 0));
      const auto end = static_cast<size_t>(i + half + 1);
      out[static_cast<size_t>(i)] = (sum[end] - sum[begin]) / (count[end] - count[begin]);
      continue;
    }
    for (; tail_begin > std::max<std::ptrdiff_t>(i - half, 0); --tail_begin)
      if (const double value = y[static_cast<size_t>(tail_begin - 1)]; std::isfinite(value))
        tail.add(static_cast<double>(size - tail_begin), value);
    out[static_cast<size_t>(i)] = tail.line(static_cast<double>(size - 1 - i));
  }
  return out;
}

}  // namespace ingot
