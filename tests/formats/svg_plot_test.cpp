#include "ingot/formats/chart/svg_plot.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <regex>
#include <sstream>

#include "ingot/core/error.h"
#include "ingot/formats/markup.h"

namespace ingot {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

// Returns true if every element is closed in order and every attribute is quoted. This is a small XML
// reader that shares no code with the plot.
bool is_well_formed(const std::string& xml) {
  static const std::regex kTag("<(/?)([a-zA-Z]+)((?:\\s+[-a-zA-Z:]+=\"[^\"<>]*\")*)\\s*(/?)>");
  std::vector<std::string> open;
  std::string rest;
  size_t at = 0;
  for (std::sregex_iterator it(xml.begin(), xml.end(), kTag), end; it != end; ++it) {
    rest += xml.substr(at, static_cast<size_t>(it->position()) - at);
    at = static_cast<size_t>(it->position() + it->length());
    if ((*it)[1].length()) {
      if (open.empty() || open.back() != (*it)[2]) return false;
      open.pop_back();
    } else if (!(*it)[4].length()) {
      open.push_back((*it)[2]);
    }
  }
  rest += xml.substr(at);
  return open.empty() && rest.find_first_of("<>") == rest.npos;
}

size_t count(const std::string& text, const std::string& part) {
  size_t n = 0;
  for (size_t at = text.find(part); at != text.npos; at = text.find(part, at + 1)) ++n;
  return n;
}

// Returns the numbers of the only path with this stroke-width, as x, y, x, y ...
std::vector<double> drawn_numbers(const std::string& svg, const std::string& stroke_width) {
  std::smatch match;
  const std::regex path("<path d=\"([^\"]*)\" fill=\"none\" stroke=\"[^\"]*\" stroke-width=\"" +
                        stroke_width + "\"");
  EXPECT_TRUE(std::regex_search(svg, match, path));
  std::string d = match[1];
  std::ranges::replace_if(
      d, [](char c) { return c == 'M' || c == 'L' || c == 'h'; }, ' ');
  std::istringstream in(d);
  return {std::istream_iterator<double>(in), std::istream_iterator<double>()};
}

LinePlot ramp(size_t n) {
  PlotSeries s{"ramp", {}, {}};
  for (size_t i = 0; i < n; ++i) {
    s.x.push_back(static_cast<double>(i));
    s.y.push_back(static_cast<double>(i));
  }
  return {"Title", "step", "loss", {s}};
}

TEST(NiceTicks, AreRoundAndInside) {
  EXPECT_THAT(nice_ticks(0, 10, 5), ElementsAre(0, 2, 4, 6, 8, 10));
  EXPECT_THAT(nice_ticks(0, 1, 4), ElementsAre(0, 0.5, 1));
  EXPECT_THAT(nice_ticks(1, 1000, 6, true), ElementsAre(1, 10, 100, 1000));
  EXPECT_THAT(nice_ticks(1, 100, 8, true), ElementsAre(1, 2, 5, 10, 20, 50, 100));
  for (const double low : {-1e30, -7.3, 0.0, 1e-9, 3.999, 1e15})
    for (const double span : {1e-7, 0.3, 1.0, 12345.0, 1e40}) {
      const double high = low + span;
      if (!(low < high)) continue;
      const std::vector<double> ticks = nice_ticks(low, high, 5);
      EXPECT_LE(ticks.size(), 12u);
      for (const double t : ticks) {
        EXPECT_GE(t, low - 1e-8 * std::max(std::abs(low), span));
        EXPECT_LE(t, high + 1e-8 * std::max(std::abs(high), span));
      }
    }
  EXPECT_THROW(nice_ticks(1, 1, 5), Error);
  EXPECT_THROW(nice_ticks(0, 1, 5, true), Error);
  EXPECT_THROW(nice_ticks(0, kInf, 5), Error);
}

TEST(Smoothed, IsTheMeanOfTheWindowAndLeavesAStraightLineUnchanged) {
  std::vector<double> y(101, 0.0);
  y[50] = 1;
  const std::vector<double> s = smoothed(y, 10);
  for (size_t i = 0; i < 90; ++i) EXPECT_NEAR(s[i], i < 40 || i > 60 ? 0 : 1.0 / 21, 1e-12) << i;
  for (size_t i = 0; i < y.size(); ++i) y[i] = 3 - 0.25 * static_cast<double>(i);
  for (const double half_width : {0.0, 1.0, 7.5, 1e9}) {
    const std::vector<double> line = smoothed(y, half_width);
    for (size_t i = 0; i < y.size(); ++i) EXPECT_NEAR(line[i], y[i], 1e-9) << half_width << " at " << i;
  }
}

TEST(Smoothed, SkipsNonFiniteValues) {
  const std::vector<double> out = smoothed(std::vector<double>{2, kNan, 4, 6, 8, kNan}, 2);
  EXPECT_TRUE(std::isnan(out[1]) && std::isnan(out[5]));
  EXPECT_DOUBLE_EQ(out[0], 2);
  EXPECT_DOUBLE_EQ(out[2], 5);  // mean of 4 and 6; the NaN in the window is skipped
  EXPECT_DOUBLE_EQ(out[4], 7);  // mean of 6 and 8
  EXPECT_TRUE(smoothed({}, 3).empty());
}

TEST(SvgPlot, DrawsARampFromCornerToCorner) {
  const std::string svg = render_svg(ramp(11));
  EXPECT_TRUE(is_well_formed(svg));
  const std::vector<double> d = drawn_numbers(svg, "2");
  ASSERT_EQ(d.size(), 22u);
  for (size_t i = 2; i < d.size(); i += 2) {
    EXPECT_NEAR(d[i] - d[i - 2], (d[20] - d[0]) / 10, 0.11);
    EXPECT_NEAR(d[i + 1] - d[i - 1], (d[21] - d[1]) / 10, 0.11);
  }
  EXPECT_LT(d[21], d[1]);  // the line rises
  for (const char* text : {">Title<", ">step<", ">loss<", ">ramp<", ">0<", ">10<"})
    EXPECT_THAT(svg, HasSubstr(text));
}

TEST(SvgPlot, EveryYAxisHasAtLeastThreeTicks) {
  for (const int height : {160, 290, 420})
    for (const double low : {-3.0, 0.9, 1.3, 4.99, 60.0}) {
      LinePlot plot{"T", "x", "y", {{"s", {0, 1}, {low, low + 7.9}}}};
      plot.height_px = height;
      EXPECT_GE(count(render_svg(plot), "ip-grid\" d="), 3u) << height << " " << low;
    }
}

TEST(SvgPlot, LogAxesSpaceDecadesEvenlyAndSkipValuesThatAreNotPositive) {
  LinePlot plot{"", "", "", {{"s", {1, 10, 100, 1000, 0, -1}, {1e-3, 1e-2, 1e-1, 1, 5, 5}}}, true, true};
  const std::vector<double> d = drawn_numbers(render_svg(plot), "2");
  ASSERT_EQ(d.size(), 8u);
  EXPECT_NEAR(d[2] - d[0], d[4] - d[2], 0.11);
  EXPECT_NEAR(d[3] - d[1], d[7] - d[5], 0.11);
}

TEST(SvgPlot, AMissingValueInterruptsTheLine) {
  LinePlot plot{"", "", "", {{"s", {0, 1, 2, 3, 4, 5}, {1, 2, kNan, 3, kInf, 4}}}};
  const std::string svg = render_svg(plot);
  EXPECT_TRUE(is_well_formed(svg));
  EXPECT_THAT(svg, Not(HasSubstr("nan")));
  EXPECT_THAT(svg, Not(HasSubstr("inf")));
  std::smatch match;
  ASSERT_TRUE(std::regex_search(svg, match, std::regex("d=\"([^\"]*)\" fill=\"none\"")));
  EXPECT_EQ(count(match[1], "M"), 3u);
}

TEST(SvgPlot, LongSeriesAreThinnedButKeepTheirExtremes) {
  LinePlot plot = ramp(100'000);
  for (size_t i = 0; i < plot.series[0].y.size(); ++i)
    plot.series[0].y[i] = std::sin(static_cast<double>(i) / 1e4);
  plot.series[0].y[54'321] = 50;
  const std::string svg = render_svg(plot);
  EXPECT_LT(svg.size(), 80'000u);
  const std::vector<double> d = drawn_numbers(svg, "2");
  std::vector<double> y_px;
  for (size_t i = 1; i < d.size(); i += 2) y_px.push_back(d[i]);
  std::ranges::sort(y_px);
  EXPECT_LT(y_px.front(), y_px[y_px.size() / 2] - 150);  // the spike stands out above the waves
  EXPECT_GT(y_px[1], y_px[y_px.size() / 2] - 20);
}

TEST(SvgPlot, HostileTextAndValuesStayInside) {
  LinePlot plot{"</svg><script>\"'&\x01\xff", "<x>", "y\"", {{"<b>&", {1, 2, 3}, {1e308, -1e308, 0}}}};
  const std::string svg = render_svg(plot);
  EXPECT_TRUE(is_well_formed(svg));
  EXPECT_THAT(svg, Not(HasSubstr("<script")));
  for (const double v : {0.0, 1e-300, 1e300, -5.0}) {
    plot.series = {{"s", {v}, {v}, PlotStyle::kPoints}};
    const std::string one = render_svg(plot);
    EXPECT_TRUE(is_well_formed(one)) << v;
    EXPECT_THAT(one, Not(HasSubstr("nan"))) << v;
    EXPECT_THAT(one, HasSubstr("<circle")) << v;
  }
}

TEST(SvgPlot, AnEmptyPlotSaysThatThereIsNothingYet) {
  EXPECT_THAT(render_svg({"T", "x", "y", {}}), HasSubstr("no data yet"));
  EXPECT_THAT(render_svg({"T", "x", "y", {{"s", {1, 2}, {kNan, kNan}}}}), HasSubstr("no data yet"));
  EXPECT_THAT(render_svg({"T", "x", "y", {{"s", {}, {}}}, true, true}), HasSubstr("no data yet"));
}

TEST(SvgPlot, LoadsNothingFromOutside) {
  const std::string svg = render_svg(ramp(3));
  EXPECT_EQ(count(svg, "http"), 1u);  // the XML namespace
  for (const char* word : {"href", "url(", "@import", "<script", "<image"})
    EXPECT_THAT(svg, Not(HasSubstr(word)));
}

TEST(SvgPlot, RefusesBrokenInput) {
  EXPECT_THROW(render_svg({"T", "x", "y", {{"s", {1, 2}, {1}}}}), Error);
  LinePlot small = ramp(3);
  small.width_px = 100;
  EXPECT_THROW(render_svg(small), Error);
}

TEST(EscapeMarkup, EscapesAndRepairs) {
  EXPECT_EQ(escape_markup("a<b>&\"'c\n\té\xf0\x9f\x98\x80"),
            "a&lt;b&gt;&amp;&quot;&#39;c\n\té\xf0\x9f\x98\x80");
  const std::string r = "\xef\xbf\xbd";
  EXPECT_EQ(escape_markup(std::string("\0\x1b", 2)), r + r);
  EXPECT_EQ(escape_markup("\xff\x80"), r + r);
  EXPECT_EQ(escape_markup("\xc0\x80"), r + r);                  // overlong
  EXPECT_EQ(escape_markup("\xed\xa0\x80"), r + r + r);          // surrogate
  EXPECT_EQ(escape_markup("\xf4\x90\x80\x80"), r + r + r + r);  // above U+10FFFF
  EXPECT_EQ(escape_markup("x\xe2\x82"), "x" + r + r);           // cut off
  EXPECT_EQ(escape_markup("\xef\xbf\xbf"), r);
}

TEST(SvgPlot, BarsReachFromLowToHighOnTheValuesAxis) {
  LinePlot plot{"t", "x", "y", {{"a", {1, 2, 3}, {10, 20, 30}, PlotStyle::kPoints}}};
  plot.series[0].low = {5, kNan, 30};
  plot.series[0].high = {15, 21, 50};
  const std::string svg = render_svg(plot);
  EXPECT_TRUE(is_well_formed(svg));
  std::smatch match;
  ASSERT_TRUE(std::regex_search(svg, match, std::regex("<path class=\"ip-bar\" d=\"([^\"]*)\"")));
  const std::string bars = match[1];
  // A bar has a stroke up and two short strokes at its ends. A bar without a finite end is left out.
  EXPECT_EQ(count(bars, "V"), 2u) << bars;
  EXPECT_EQ(count(bars, "h8"), 4u) << bars;
  const std::regex stroke("M([0-9.]+) ([0-9.]+)V([0-9.]+)");
  std::vector<double> heights;
  for (std::sregex_iterator it(bars.begin(), bars.end(), stroke), end; it != end; ++it)
    heights.push_back(std::stod((*it)[2]) - std::stod((*it)[3]));
  ASSERT_EQ(heights.size(), 2u);
  EXPECT_NEAR(heights[1] / heights[0], 2, 0.01) << "30 .. 50 is twice as high as 5 .. 15";
  // Without bars nothing of them is drawn.
  plot.series[0].low.clear();
  plot.series[0].high.clear();
  EXPECT_THAT(render_svg(plot), Not(HasSubstr("ip-bar")));
}

TEST(SvgPlot, BarsNeedTwoEndsForEveryPoint) {
  LinePlot plot{"t", "x", "y", {{"a", {1, 2}, {1, 2}}}};
  plot.series[0].low = {0, 1};
  EXPECT_THROW(render_svg(plot), Error);
  plot.series[0].high = {2};
  EXPECT_THROW(render_svg(plot), Error);
  plot.series[0].high = {2, 3};
  EXPECT_NO_THROW(render_svg(plot));
}

TEST(SvgPlot, NamesStandInPlaceOfNumbers) {
  LinePlot plot{"t", "x", "y", {{"a", {0, 1, 2}, {3, 1, 2}, PlotStyle::kPoints}}};
  plot.x_names = {"rms<norm>", "layernorm", "none"};
  const std::string svg = render_svg(plot);
  EXPECT_TRUE(is_well_formed(svg));
  for (const char* name : {">rms&lt;norm&gt;<", ">layernorm<", ">none<"}) EXPECT_THAT(svg, HasSubstr(name));
  plot.x_names = {"alone"};
  plot.series[0] = {"a", {0}, {3}};
  EXPECT_THAT(render_svg(plot), HasSubstr(">alone<"));
}

}  // namespace
}  // namespace ingot
