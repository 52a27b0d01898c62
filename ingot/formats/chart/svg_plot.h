// Line charts as SVG text, without scripts, external fonts or files; readable on light and dark pages.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace ingot {

enum class PlotStyle {
  kLine,
  kFaint,   // thin and translucent, for noisy raw values behind a smoothed line
  kPoints,  // a line with a dot at every point, for sparse evaluations
};

struct PlotSeries {
  std::string name = {};               // shown in the legend unless empty
  std::vector<double> x = {}, y = {};  // equal lengths; a value that is not finite breaks the line
  PlotStyle style = PlotStyle::kLine;
  int color = -1;  // index into the palette of 8; -1 stands for the series' own index
  std::vector<double> low = {}, high = {};  // the ends of a bar at every point; empty: no bars
};

struct LinePlot {
  std::string title = {}, x_label = {}, y_label = {};  // any text; may be empty
  std::vector<PlotSeries> series = {};
  bool is_log_x = false, is_log_y = false;  // values that are not positive are left out
  bool includes_zero = false;               // render_text only: the y axis includes 0
  int width_px = 760, height_px = 420;
  std::vector<std::string> x_names = {};  // written at x = 0, 1, ... in place of numbers; empty: numbers
};

// Draws the chart. Long series are thinned to what the width can show, keeping the extremes. Every series
// except the faint ones has its last value written at its end. A chart without points shows "no data yet".
// kInternal error if x, y and the bars of a series differ in length, or if the size is below 240 x 160.
std::string render_svg(const LinePlot& plot);

// Draws several charts below each other as one picture.
std::string render_svg_column(std::span<const LinePlot> plots);

// The moving average over `half_width_points` on either side, without lag: a straight line stays unchanged up
// to both ends. Near the beginning, where a loss falls steeply, the window is narrower (on either side a
// quarter of the points before it). At the end, where half of the window is missing, a line fitted to the
// last points gives the value. Values that are not finite stay unchanged and enter no average.
std::vector<double> smoothed(std::span<const double> y, double half_width_points);

// Returns the half width for smoothed() that keeps a line readable: a fortieth of its points, at least 2.
double smoothing_width(size_t points);

// Returns about `wanted` round values in [low, high]: 1, 2 or 5 times a power of ten. On a log axis these
// are all decades, and values between them if there are few decades. REQUIRES: low < high, both finite,
// and positive on a log axis.
std::vector<double> nice_ticks(double low, double high, int wanted, bool is_log = false);

}  // namespace ingot
