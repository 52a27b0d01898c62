#include "ingot/formats/chart/text_plot.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "ingot/core/error.h"

namespace ingot {
namespace {

struct Range {
  double low = std::numeric_limits<double>::infinity();
  double high = -std::numeric_limits<double>::infinity();
  void add(double value) {
    low = std::min(low, value);
    high = std::max(high, value);
  }
  bool is_empty() const { return low > high; }
  // The index of the cell, out of n, that contains the value.
  int cell(double value, int n) const {
    if (high == low) return 0;
    return std::clamp(static_cast<int>((value - low) / (high - low) * (n - 1) + 0.5), 0, n - 1);
  }
};

bool can_draw(const PlotSeries& s, size_t i) { return std::isfinite(s.x[i]) && std::isfinite(s.y[i]); }

std::string label(double value) { return fmt::format("{:.4g}", value); }

}  // namespace

std::string render_text(const LinePlot& plot, int columns, int rows) {
  INGOT_CHECK(columns >= 16 && rows >= 4, "render_text: {} x {} is below 16 x 4", columns, rows);
  Range x, y;
  for (const PlotSeries& s : plot.series)
    for (size_t i = 0; i < s.x.size(); ++i) {
      if (!can_draw(s, i)) continue;
      x.add(s.x[i]);
      y.add(s.y[i]);
    }
  std::string text = plot.title + "\n";
  if (x.is_empty()) return text + "  no data yet\n";
  if (plot.includes_zero) y.add(0);

  std::vector<std::string> field(static_cast<size_t>(rows), std::string(static_cast<size_t>(columns), ' '));
  for (size_t k = 0; k < plot.series.size(); ++k) {
    const PlotSeries& s = plot.series[k];
    for (size_t i = 0; i < s.x.size(); ++i)
      if (can_draw(s, i))
        field[static_cast<size_t>(rows - 1 - y.cell(s.y[i], rows))]
             [static_cast<size_t>(x.cell(s.x[i], columns))] = "*o+x#"[k % 5];
  }
  const std::string high = label(y.high), low = label(y.low);
  const size_t width = std::max(high.size(), low.size());
  for (size_t r = 0; r < field.size(); ++r) {
    const std::string& mark = r == 0 ? high : r + 1 == field.size() ? low : std::string();
    text += fmt::format("{:>{}} |{}\n", mark, width, field[r]);
  }
  const std::string right = label(x.high) + " " + plot.x_label;
  const std::string left = label(x.low);
  const size_t between = std::max<size_t>(
      1, static_cast<size_t>(columns) - std::min(static_cast<size_t>(columns), left.size() + right.size()));
  text += fmt::format("{:>{}} +{}\n", "", width, std::string(static_cast<size_t>(columns), '-'));
  return text + fmt::format("{:>{}}  {}{:{}}{}\n", "", width, left, "", between, right);
}

}  // namespace ingot
