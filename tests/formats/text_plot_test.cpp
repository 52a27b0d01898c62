#include "ingot/formats/chart/text_plot.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <sstream>

#include "ingot/core/error.h"

namespace ingot {
namespace {

LinePlot line(std::vector<double> x, std::vector<double> y) {
  LinePlot plot;
  plot.title = "Title";
  plot.x_label = "step";
  plot.series.push_back({.x = std::move(x), .y = std::move(y)});
  return plot;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string one; std::getline(stream, one);) lines.push_back(one);
  return lines;
}

TEST(TextPlot, DrawsALineFromCornerToCorner) {
  std::vector<double> x, y;
  for (int i = 0; i <= 100; ++i) {
    x.push_back(i);
    y.push_back(2.0 * i);
  }
  const std::vector<std::string> lines = lines_of(render_text(line(x, y), 20, 5));
  ASSERT_EQ(lines.size(), 8u);
  EXPECT_EQ(lines[0], "Title");
  EXPECT_EQ(lines[1].substr(0, 5), "200 |");
  EXPECT_EQ(lines[1].back(), '*');
  EXPECT_EQ(lines[5].substr(0, 6), "  0 |*");
  EXPECT_EQ(lines[6], "    +--------------------");
  EXPECT_THAT(lines[7], ::testing::AllOf(::testing::HasSubstr("0"), ::testing::EndsWith("100 step")));
  for (size_t column = 0; column < 20; ++column) {
    int marks = 0;
    for (size_t row = 1; row <= 5; ++row)
      marks += lines[row].size() > 5 + column && lines[row][5 + column] == '*';
    EXPECT_GE(marks, 1) << column;
  }
}

// A loss from 3.1 to 2.9 fills the chart. If zero is included, it is a line at the top.
TEST(TextPlot, SpansTheDataAndOnRequestZero) {
  LinePlot plot = line({0, 1, 2}, {3.1, 3.0, 2.9});
  std::vector<std::string> lines = lines_of(render_text(plot, 20, 5));
  EXPECT_EQ(lines[1].substr(0, 6), "3.1 |*");
  EXPECT_EQ(lines[5].substr(0, 5), "2.9 |");
  EXPECT_EQ(lines[5].back(), '*');
  plot.includes_zero = true;
  lines = lines_of(render_text(plot, 20, 5));
  EXPECT_EQ(lines[5].substr(0, 5), "  0 |");
  EXPECT_EQ(lines[5].find('*'), std::string::npos);
  plot.series[0].y = {-3, -2, -1};
  EXPECT_EQ(lines_of(render_text(plot, 20, 5))[1].substr(0, 4), " 0 |");
}

TEST(TextPlot, DrawsEmptyConstantAndMissingData) {
  EXPECT_THAT(render_text(line({}, {}), 20, 5), ::testing::HasSubstr("no data yet"));
  EXPECT_THAT(render_text(line({1, 2}, {NAN, INFINITY}), 20, 5), ::testing::HasSubstr("no data yet"));
  EXPECT_THAT(render_text(line({1, 2, 3}, {5, NAN, 5}), 20, 5), ::testing::HasSubstr("5 |"));
  EXPECT_THROW(render_text(line({1}, {1}), 3, 3), Error);
}

TEST(SvgColumn, StacksItsPlotsVertically) {
  const std::vector<LinePlot> plots = {line({0, 1}, {0, 1}), line({0, 1}, {1, 0})};
  const std::string svg = render_svg_column(plots);
  EXPECT_THAT(
      svg, ::testing::StartsWith("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"760\" height=\"840\""));
  EXPECT_THAT(svg, ::testing::HasSubstr("translate(0 420)"));
  size_t charts = 0;
  for (size_t at = 0; (at = svg.find("class=\"ip\"", at)) != std::string::npos; ++at) ++charts;
  EXPECT_EQ(charts, 2u);
}

}  // namespace
}  // namespace ingot
