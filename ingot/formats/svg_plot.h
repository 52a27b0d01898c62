// Line charts as SVG text: no scripts, no fonts or files from elsewhere; readable on light and dark pages.
#pragma once

#include <span>
#include <string>
#include <vector>

namespace ingot {

enum class PlotStyle {
  kLine,
  kFaint,   // thin and translucent: noisy raw values behind a smoothed line
  kPoints,  // a line with a dot at every point: sparse evaluations
};

struct PlotSeries {
  std::string name = {};  // in the legend; empty: not there
  std::vector<double> x = {},
                      y = {};  // REQUIRES: equal lengths. A point that is not finite interrupts the line
  PlotStyle style = PlotStyle::kLine;
  int color = -1;  // index into the palette of 8; -1: the position among the series
};

struct LinePlot {
  std::string title = {}, x_label = {}, y_label = {};  // any text; may be empty
  std::vector<PlotSeries> series = {};
  bool is_log_x = false, is_log_y = false;  // points that are not positive are left out then
  bool includes_zero = false;               // in text: heights are compared from y = 0
  int width_px = 760, height_px = 420;
};

// The chart. Long series are thinned to what the width can show (extremes are kept); the last value of every
// series but the faint ones stands at its end. Without a single point the chart says so. kInternal error if x
// and y of a series differ in length or the size is below 240 x 160.
std::string render_svg(const LinePlot& plot);

// Several charts one below the other, as one picture.
std::string render_svg_column(std::span<const LinePlot> plots);

// The moving average over `half_width_points` on either side, without a lag: a straight line stays as it is
// up to both ends. Near the beginning, where a loss falls steeply, the window is narrower (a quarter of the
// points before it, on either side); at the end a line fitted to the last points stands in for the missing
// half. Values that are not finite stay as they are and enter no average.
std::vector<double> smoothed(std::span<const double> y, double half_width_points);

// About `wanted` round values (1, 2 or 5 times a power of ten, or all decades and their 2 and 5 on a log
// axis) in [low, high]. REQUIRES: low < high, both finite; positive on a log axis.
std::vector<double> nice_ticks(double low, double high, int wanted, bool is_log = false);

}  // namespace ingot
