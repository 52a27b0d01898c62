#include "ingot/formats/chart/svg_plot.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <limits>
#include <string_view>
#include <utility>

#include "ingot/core/error.h"
#include "ingot/formats/markup.h"

namespace ingot {
namespace {

// Colours of medium lightness, so that they are visible on white and on near-black.
constexpr std::array<std::string_view, 8> kPalette{"#3b82f6", "#f2762e", "#12a37f", "#a05bd6",
                                                   "#e0457b", "#0ea5b7", "#c08a00", "#7b8794"};

constexpr std::string_view kStyle =
    "<style>"
    ".ip{font:12px system-ui,-apple-system,'Segoe UI',Roboto,Helvetica,Arial,sans-serif}"
    ".ip text{fill:#5c6570}.ip .ip-title{fill:#1f2630;font-size:15px;font-weight:600}"
    ".ip .ip-name{fill:#333b46}.ip .ip-grid{stroke:#8a94a3;stroke-opacity:.22}"
    ".ip .ip-axis{stroke:#8a94a3;stroke-opacity:.75}.ip .ip-end{font-size:11.5px;font-weight:600}"
    "@media(prefers-color-scheme:dark){.ip text{fill:#9aa4b2}.ip .ip-title{fill:#e8ecf2}.ip "
    ".ip-name{fill:#cdd4de}}"
    "@media print{.ip text{fill:#444}.ip .ip-title{fill:#000}.ip .ip-name{fill:#222}}"
    "</style>";

constexpr double kLegendGap = 18, kCharacterWidth = 6.6;

// Maps the values of one axis to pixels.
struct Axis {
  double low = 0, high = 1;        // values at the two ends
  double low_px = 0, high_px = 0;  // the y axis runs upwards: low_px > high_px
  bool is_log = false;
  std::vector<double> ticks;

  double position(double v) const { return is_log ? std::log10(v) : v; }
  double pixel(double v) const {
    const double t = (position(v) - position(low)) / (position(high) - position(low));
    return low_px + t * (high_px - low_px);
  }
};

struct Point {
  double x_px, y_px;
};
using Segment = std::vector<Point>;  // points joined by an unbroken line

bool can_show(double v, bool is_log) { return std::isfinite(v) && (!is_log || v > 0); }

bool has_bar(const LinePlot& plot, const PlotSeries& series, size_t i) {
  return !series.low.empty() && can_show(series.low[i], plot.is_log_y) &&
         can_show(series.high[i], plot.is_log_y);
}

// Makes an axis over the range of the values that can be shown. The range is never empty.
Axis make_axis(const LinePlot& plot, bool is_y) {
  Axis axis;
  axis.is_log = is_y ? plot.is_log_y : plot.is_log_x;
  double low = std::numeric_limits<double>::infinity(), high = -low;
  for (const PlotSeries& s : plot.series) {
    for (size_t i = 0; i < s.x.size(); ++i) {
      if (!can_show(s.x[i], plot.is_log_x) || !can_show(s.y[i], plot.is_log_y)) continue;
      low = std::min(low, is_y ? s.y[i] : s.x[i]);
      high = std::max(high, is_y ? s.y[i] : s.x[i]);
      if (!is_y || !has_bar(plot, s, i)) continue;
      low = std::min(low, s.low[i]);
      high = std::max(high, s.high[i]);
    }
  }
  if (low > high) low = high = 1;
  if (!(high - low > 1e-12 * std::abs(high))) {  // all values are equal: adds some room
    const double room = low == 0 ? 1 : 0.1 * std::abs(low);
    low -= room;
    high += room;
  }
  axis.low = low;
  axis.high = high;
  return axis;
}

// Extends both ends to the next tick. Log axes, and axes with fewer than two ticks, are unchanged.
void extend_to_ticks(Axis& axis, int wanted) {
  do axis.ticks = nice_ticks(axis.low, axis.high, wanted, axis.is_log);
  while (axis.ticks.size() < 3 && ++wanted < 12);
  if (axis.is_log || axis.ticks.size() < 2) return;
  const double step = axis.ticks[1] - axis.ticks[0];
  axis.low = std::floor(axis.low / step + 1e-9) * step;
  axis.high = std::ceil(axis.high / step - 1e-9) * step;
  axis.ticks = nice_ticks(axis.low, axis.high, static_cast<int>(std::lround((axis.high - axis.low) / step)));
}

// Shortens 4e-05 to 4e-5.
std::string short_exponent(std::string text) {
  for (const std::string_view sign : {"e-0", "e+0"})
    if (const size_t at = text.find(sign); at != text.npos) text.erase(at + 2, 1);
  return text;
}

// Formats 0.25, 3, 12k, 1.5M, 3e-5. `step` is the distance between ticks; `largest` is the largest tick,
// which chooses the unit of all of them. With step 0 the value is formatted independently of other ticks.
std::string tick_text(double v, double step, double largest) {
  if (v == 0) return "0";
  largest = std::max(std::abs(v), largest);
  if (largest < 1e-3 || largest >= 1e12) return short_exponent(fmt::format("{:.3g}", v));
  const auto [unit, suffix] = largest >= 1e9   ? std::pair(1e9, "G")
                              : largest >= 1e6 ? std::pair(1e6, "M")
                              : largest >= 1e4 ? std::pair(1e3, "k")
                                               : std::pair(1.0, "");
  if (step == 0) return short_exponent(fmt::format("{:.4g}{}", v / unit, suffix));
  const int decimals = std::clamp(static_cast<int>(-std::floor(std::log10(step / unit) + 1e-9)), 0, 9);
  return fmt::format("{:.{}f}{}", v / unit, decimals, suffix);
}

std::string tick_text(const Axis& axis, double v) {
  if (axis.is_log || axis.ticks.size() < 2) return tick_text(v, 0, 0);
  return tick_text(v, axis.ticks[1] - axis.ticks[0],
                   std::max(std::abs(axis.ticks.front()), std::abs(axis.ticks.back())));
}

// Formats a single value: 1.508, 12.3k, 5.3e-10.
std::string value_text(double v) {
  if (std::abs(v) < 1e-3 || std::abs(v) >= 1e12) return short_exponent(fmt::format("{:.2g}", v));
  return std::abs(v) < 1e4 ? fmt::format("{:.4g}", v) : tick_text(v, 0, 0);
}

// Keeps the first, lowest, highest and last point of each pixel column, in their order.
Segment thinned(const Segment& points) {
  Segment out;
  for (size_t begin = 0, end = 0; begin < points.size(); begin = end) {
    const double column = std::floor(points[begin].x_px);
    size_t low = begin, high = begin;
    for (end = begin; end < points.size() && std::floor(points[end].x_px) == column; ++end) {
      if (points[end].y_px < points[low].y_px) low = end;
      if (points[end].y_px > points[high].y_px) high = end;
    }
    std::array<size_t, 4> kept{begin, std::min(low, high), std::max(low, high), end - 1};
    for (size_t i = 0; i < kept.size(); ++i)
      if (i == 0 || kept[i] != kept[i - 1]) out.push_back(points[kept[i]]);
  }
  return out;
}

std::vector<Segment> segments(const PlotSeries& series, const Axis& x, const Axis& y) {
  std::vector<Segment> out(1);
  for (size_t i = 0; i < series.x.size(); ++i) {
    if (can_show(series.x[i], x.is_log) && can_show(series.y[i], y.is_log))
      out.back().push_back({x.pixel(series.x[i]), y.pixel(series.y[i])});
    else if (!out.back().empty())
      out.emplace_back();
  }
  if (out.back().empty()) out.pop_back();
  for (Segment& segment : out) segment = thinned(segment);
  return out;
}

std::string_view color_of(const LinePlot& plot, size_t i) {
  const int color = plot.series[i].color;
  return kPalette[(color < 0 ? i : static_cast<size_t>(color)) % kPalette.size()];
}

std::string draw_series(const PlotSeries& series, std::string_view color, const Axis& x, const Axis& y) {
  std::string path, dots;
  for (const Segment& segment : segments(series, x, y)) {
    for (size_t i = 0; i < segment.size(); ++i)
      path += fmt::format("{}{:.1f} {:.1f}", i == 0 ? 'M' : 'L', segment[i].x_px, segment[i].y_px);
    if (segment.size() == 1) path += "h.01";  // so that a lone point is drawn as a round cap
    if (series.style == PlotStyle::kPoints)
      for (const Point& p : segment)
        dots += fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3\"/>", p.x_px, p.y_px);
  }
  if (path.empty()) return "";
  const bool is_faint = series.style == PlotStyle::kFaint;
  return fmt::format(
      "<g fill=\"{0}\"><path d=\"{1}\" fill=\"none\" stroke=\"{0}\" stroke-width=\"{2}\" "
      "stroke-opacity=\"{3}\" "
      "stroke-linejoin=\"round\" stroke-linecap=\"round\"/>{4}</g>\n",
      color, path, is_faint ? "1" : "2", is_faint ? ".38" : "1", dots);
}

// Draws the bars with a short stroke at either end.
std::string draw_bars(const LinePlot& plot, const PlotSeries& series, std::string_view color, const Axis& x,
                      const Axis& y) {
  std::string path;
  for (size_t i = 0; i < series.x.size(); ++i)
    if (can_show(series.x[i], plot.is_log_x) && has_bar(plot, series, i))
      path +=
          fmt::format("M{0:.1f} {1:.1f}V{2:.1f}M{3:.1f} {1:.1f}h8M{3:.1f} {2:.1f}h8", x.pixel(series.x[i]),
                      y.pixel(series.low[i]), y.pixel(series.high[i]), x.pixel(series.x[i]) - 4);
  if (path.empty()) return "";
  return fmt::format("<path class=\"ip-bar\" d=\"{}\" fill=\"none\" stroke=\"{}\" stroke-opacity=\".7\"/>\n",
                     path, color);
}

// Draws the title at the left, then the series' names, each with a stroke of its colour. Returns the y
// position where the plot may begin.
double draw_heading(const LinePlot& plot, double left_px, std::string& svg) {
  double y = 14;
  if (!plot.title.empty()) {
    y += 10;
    svg += fmt::format("<text class=\"ip-title\" x=\"{:.0f}\" y=\"{:.0f}\">{}</text>\n", left_px, y,
                       escape_markup(plot.title));
    y += 8;
  }
  double x = left_px;
  bool has_names = false;
  for (size_t i = 0; i < plot.series.size(); ++i) {
    const PlotSeries& series = plot.series[i];
    if (series.name.empty()) continue;
    const double width = 22 + kCharacterWidth * static_cast<double>(series.name.size());
    if (!has_names) y += 14;
    if (has_names && x + width > plot.width_px - 10) {
      x = left_px;
      y += kLegendGap;
    }
    has_names = true;
    const bool is_faint = series.style == PlotStyle::kFaint;
    svg += fmt::format(
        "<path d=\"M{0:.1f} {1:.1f}h14\" stroke=\"{2}\" stroke-width=\"{3}\" stroke-opacity=\"{4}\" "
        "stroke-linecap=\"round\"/>",
        x + 1, y - 4, color_of(plot, i), is_faint ? "1.5" : "3", is_faint ? ".5" : "1");
    if (series.style == PlotStyle::kPoints)
      svg += fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"4\" fill=\"{}\"/>", x + 8, y - 4,
                         color_of(plot, i));
    svg += fmt::format("<text class=\"ip-name\" x=\"{:.1f}\" y=\"{:.0f}\">{}</text>\n", x + 21, y,
                       escape_markup(series.name));
    x += width + kLegendGap;
  }
  return y + (plot.y_label.empty() ? 16 : 36);
}

void draw_axes(const LinePlot& plot, const Axis& x, const Axis& y, std::string& svg) {
  const double left = x.low_px, right = x.high_px, top = y.high_px, bottom = y.low_px;
  for (const double v : y.ticks) {
    svg += fmt::format("<path class=\"ip-grid\" d=\"M{:.1f} {:.1f}H{:.1f}\"/>", left, y.pixel(v), right);
    svg += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"end\">{}</text>\n", left - 8,
                       y.pixel(v) + 4, tick_text(y, v));
  }
  for (const double v : x.ticks) {
    svg += fmt::format("<path class=\"ip-axis\" d=\"M{:.1f} {:.1f}v5\"/>", x.pixel(v), bottom);
    svg += fmt::format(
        "<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\">{}</text>\n", x.pixel(v), bottom + 18,
        plot.x_names.empty() ? tick_text(x, v) : escape_markup(plot.x_names[static_cast<size_t>(v)]));
  }
  svg += fmt::format("<path class=\"ip-axis\" d=\"M{:.1f} {:.1f}H{:.1f}\"/>\n", left, bottom, right);
  if (!plot.y_label.empty())
    svg += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\">{}</text>\n", 12.0, top - 14,
                       escape_markup(plot.y_label));
  if (!plot.x_label.empty())
    svg += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\">{}</text>\n",
                       (left + right) / 2, bottom + 36, escape_markup(plot.x_label));
}

// The last point of every series that is not faint.
struct LastValue {
  double x, y;
  std::string_view color;
  std::string text;
};

std::vector<LastValue> last_values(const LinePlot& plot) {
  std::vector<LastValue> out;
  for (size_t i = 0; i < plot.series.size(); ++i) {
    const PlotSeries& s = plot.series[i];
    size_t k = s.style == PlotStyle::kFaint ? 0 : s.x.size();
    while (k > 0 && !(can_show(s.x[k - 1], plot.is_log_x) && can_show(s.y[k - 1], plot.is_log_y))) --k;
    if (k > 0) out.push_back({s.x[k - 1], s.y[k - 1], color_of(plot, i), value_text(s.y[k - 1])});
  }
  std::ranges::sort(out, std::greater<>(), &LastValue::y);  // from top to bottom
  return out;
}

// Draws each value next to the end of its line, and moves values apart that would overlap.
void draw_last_values(std::span<const LastValue> values, const Axis& x, const Axis& y, std::string& svg) {
  double free_px = 0;  // lowest y that the next value may have
  for (const LastValue& v : values) {
    const double y_px = std::max(y.pixel(v.y) + 4, free_px);
    svg += fmt::format("<text class=\"ip-end\" x=\"{:.1f}\" y=\"{:.1f}\" style=\"fill:{}\">{}</text>\n",
                       x.pixel(v.x) + 8, y_px, v.color, v.text);
    free_px = y_px + 13;
  }
}

std::vector<double> log_ticks(double low, double high, int wanted) {
  const double decades = std::log10(high) - std::log10(low);
  if (decades < 0.7) return nice_ticks(low, high, wanted);
  const int stride = std::max(1, static_cast<int>(std::ceil(decades / wanted)));
  const std::vector<double> digits = stride > 1 || decades > wanted / 3.0 ? std::vector<double>{1}
                                     : decades > 1.3                      ? std::vector<double>{1, 2, 5}
                                                     : std::vector<double>{1, 1.5, 2, 3, 4, 5, 6, 8};
  std::vector<double> ticks;
  for (int k = static_cast<int>(std::floor(std::log10(low))); k <= std::log10(high) + 1e-9; ++k) {
    if (k % stride != 0) continue;
    for (const double digit : digits) {
      const double v = digit * std::pow(10, k);
      if (v >= low * (1 - 1e-9) && v <= high * (1 + 1e-9)) ticks.push_back(v);
    }
  }
  return ticks;
}

}  // namespace

double smoothing_width(size_t points) { return std::max(2.0, static_cast<double>(points) / 40); }

std::vector<double> nice_ticks(double low, double high, int wanted, bool is_log) {
  INGOT_CHECK(std::isfinite(low) && std::isfinite(high) && low < high && (!is_log || low > 0),
              "nice_ticks: cannot divide [{}, {}]", low, high);
  wanted = std::max(wanted, 1);
  if (is_log) return log_ticks(low, high, wanted);
  const double raw_step = high / wanted - low / wanted;
  const double decade = std::pow(10, std::floor(std::log10(raw_step)));
  const double ratio = raw_step / decade;
  const double step = decade * (ratio <= 1.0000001   ? 1
                                : ratio <= 2.0000001 ? 2
                                : ratio <= 5.0000001 ? 5
                                                     : 10);
  std::vector<double> ticks;
  const double first = std::ceil(low / step - 1e-9), last = std::floor(high / step + 1e-9);
  // A range below the precision of double has no ticks.
  if (!(last - first < 1000) || std::max(std::abs(first), std::abs(last)) > 0x1p53) return ticks;
  for (double k = first; k <= last; ++k) ticks.push_back(k * step);
  return ticks;
}

std::string render_svg(const LinePlot& plot) {
  INGOT_CHECK(plot.width_px >= 240 && plot.height_px >= 160, "render_svg: {} x {} px is below 240 x 160",
              plot.width_px, plot.height_px);
  for (const PlotSeries& s : plot.series) {
    INGOT_CHECK(s.x.size() == s.y.size(), "render_svg: series {} has {} x and {} y", s.name, s.x.size(),
                s.y.size());
    INGOT_CHECK(s.low.size() == s.high.size() && (s.low.empty() || s.low.size() == s.x.size()),
                "render_svg: series {} has {} x, {} low and {} high", s.name, s.x.size(), s.low.size(),
                s.high.size());
  }

  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"ip\" role=\"img\" width=\"{0}\" height=\"{1}\" "
      "viewBox=\"0 0 {0} {1}\" style=\"max-width:100%;height:auto\">\n<title>{2}</title>{3}\n",
      plot.width_px, plot.height_px, escape_markup(plot.title), kStyle);
  Axis x = make_axis(plot, /*is_y=*/false), y = make_axis(plot, /*is_y=*/true);
  y.high_px = draw_heading(plot, 12, svg);
  y.low_px = plot.height_px - (plot.x_label.empty() ? 30 : 48);
  extend_to_ticks(y, std::max(2, static_cast<int>((y.low_px - y.high_px) / 55)));
  size_t widest = 1;
  for (const double v : y.ticks) widest = std::max(widest, tick_text(y, v).size());
  const std::vector<LastValue> ends = last_values(plot);
  size_t widest_end = 1;
  for (const LastValue& v : ends) widest_end = std::max(widest_end, v.text.size());
  x.low_px = 20 + kCharacterWidth * static_cast<double>(widest);
  x.high_px = plot.width_px - 20 - kCharacterWidth * static_cast<double>(widest_end);
  for (size_t i = 0; i < plot.x_names.size(); ++i) x.ticks.push_back(static_cast<double>(i));
  if (plot.x_names.size() > 1) {
    x.low = 0;
    x.high = x.ticks.back();
  }
  if (x.ticks.empty())
    x.ticks = nice_ticks(x.low, x.high, std::max(2, static_cast<int>((x.high_px - x.low_px) / 85)), x.is_log);

  draw_axes(plot, x, y, svg);
  bool has_points = false;
  for (const bool is_faint : {true, false}) {  // faint series lie underneath
    for (size_t i = 0; i < plot.series.size(); ++i) {
      if ((plot.series[i].style == PlotStyle::kFaint) != is_faint) continue;
      svg += draw_bars(plot, plot.series[i], color_of(plot, i), x, y);
      const std::string drawn = draw_series(plot.series[i], color_of(plot, i), x, y);
      has_points = has_points || !drawn.empty();
      svg += drawn;
    }
  }
  if (has_points)
    draw_last_values(ends, x, y, svg);
  else
    svg += fmt::format("<text x=\"{:.0f}\" y=\"{:.0f}\" text-anchor=\"middle\">no data yet</text>\n",
                       (x.low_px + x.high_px) / 2, (y.low_px + y.high_px) / 2);
  return svg + "</svg>\n";
}

std::string render_svg_column(std::span<const LinePlot> plots) {
  int width_px = 0, height_px = 0;
  std::string body;
  for (const LinePlot& plot : plots) {
    body += fmt::format("<g transform=\"translate(0 {})\">\n{}</g>\n", height_px, render_svg(plot));
    width_px = std::max(width_px, plot.width_px);
    height_px += plot.height_px;
  }
  return fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" viewBox=\"0 0 {0} {1}\" "
      "style=\"max-width:100%;height:auto\">\n{2}</svg>\n",
      width_px, height_px, body);
}

}  // namespace ingot
