#include "ingot/formats/html_report.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <regex>

#include "ingot/formats/chart/chart_data.h"

namespace ingot {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

Report full() {
  Report report;
  report.title = "run <1>";
  report.subtitle = "LLaMA & co";
  report.highlights = {{"val bits per byte", "1.234"}};
  report.curves = {{"Loss", "step", "nats", {{"train", {1, 2, 3}, {3, 2, 1}}}}};
  report.samples = {{"step 10", "Once", " upon <script>alert(1)</script> a time \xff\n"}};
  report.summary = {{"steps", "100"}};
  report.config = "[train]\nsteps = 100 # <&>\n";
  report.machine = {{"processor", "EPYC"}};
  report.commands = {"ingot generate runs/x --prompt \"a\""};
  return report;
}

// Returns true if all elements are closed in order. Void elements and the document type are ignored.
bool is_balanced(const std::string& html) {
  static const std::regex kTag("<(/?)([a-zA-Z0-9]+)[^<>]*?(/?)>");
  std::vector<std::string> open;
  for (std::sregex_iterator it(html.begin(), html.end(), kTag), end; it != end; ++it) {
    const std::string name = (*it)[2];
    if (name == "meta" || (*it)[3].length()) continue;
    if (!(*it)[1].length()) {
      open.push_back(name);
    } else if (open.empty() || open.back() != name) {
      return false;
    } else {
      open.pop_back();
    }
  }
  return open.empty();
}

TEST(HtmlReport, ContainsEveryPartEscaped) {
  const std::string html = render_html(full());
  EXPECT_THAT(html, ::testing::StartsWith("<!DOCTYPE html>"));
  EXPECT_TRUE(is_balanced(html));
  for (const char* text :
       {"<title>run &lt;1&gt;</title>", "LLaMA &amp; co", "1.234", "<svg", "<b>Once</b> upon &lt;script&gt;",
        "a time \xef\xbf\xbd", "<td>100</td>", "steps = 100 # &lt;&amp;&gt;", "EPYC",
        "--prompt &quot;a&quot;", "name=\"viewport\""})
    EXPECT_THAT(html, HasSubstr(text));
}

TEST(HtmlReport, IsSelfContained) {
  const std::string html = render_html(full());
  for (const char* word : {"<link", "<img", "src=", "href", "url(", "@import"})
    EXPECT_THAT(html, Not(HasSubstr(word)));
  const std::string without_namespace =
      std::regex_replace(html, std::regex("http://www.w3.org/2000/svg"), "");
  EXPECT_THAT(std::regex_replace(without_namespace, std::regex("http-equiv"), ""), Not(HasSubstr("http")));
  EXPECT_THAT(html, HasSubstr("default-src 'none'"));
}

// Returns how often the text contains the word.
size_t count_of(const std::string& text, const std::string& word) {
  size_t count = 0;
  for (size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) ++count;
  return count;
}

TEST(HtmlReport, HostileNamesOfCurvesEndNoScript) {
  Report report = full();
  report.curves[0].title = "</script><script>alert(2)</script>\xff";
  report.curves[0].series[0].name = "<!--<script> & ]]>";
  const std::string html = render_html(report);
  EXPECT_TRUE(is_balanced(html));
  EXPECT_EQ(count_of(html, "<script"), 2u);  // the data of one curve, and the program
  EXPECT_EQ(count_of(html, "</script"), 2u);
  EXPECT_EQ(count_of(html, "<!--"), 0u);
}

TEST(HtmlReport, DataOfALongCurveIsBoundedAndHasItsExtremes) {
  LinePlot plot{.title = "Loss", .x_label = "step"};
  PlotSeries series{.name = "train"};
  for (int i = 0; i < 100'000; ++i) {
    series.x.push_back(i);
    series.y.push_back(i == 54'321 ? 99 : i == 777 ? std::nan("") : 1);
  }
  plot.series = {series};
  ASSERT_TRUE(is_interactive(plot));
  const nlohmann::json data = nlohmann::json::parse(chart_data(plot));
  const nlohmann::json& one = data["series"][0];
  EXPECT_LE(one["px"].size(), 2000u);
  EXPECT_GT(one["px"].size(), 900u);
  EXPECT_EQ(one["px"].back(), 99'999);
  EXPECT_EQ(*std::max_element(one["high"].begin(), one["high"].end()), 99);
  EXPECT_LT(*std::max_element(one["py"].begin(), one["py"].end()), 99);
}

TEST(HtmlReport, PlotsWithBarsOrNamesStayPictures) {
  Report report = full();
  report.curves[0].x_names = {"a", "b", "c"};
  EXPECT_THAT(render_html(report), Not(HasSubstr("<script")));
}

TEST(HtmlReport, EmptyPartsAreLeftOut) {
  const std::string html = render_html({.title = "nothing yet"});
  EXPECT_TRUE(is_balanced(html));
  for (const char* part : {"<h2", "<table", "<pre", "<dl", "<figure", "class=\"sub\""})
    EXPECT_THAT(html, Not(HasSubstr(part)));
}

TEST(HtmlReport, EveryCurveHasAWideAndANarrowPlot) {
  const std::string html = render_html(full());
  EXPECT_THAT(html, HasSubstr("<div class=\"wide\"><svg"));
  EXPECT_THAT(html, HasSubstr("<div class=\"narrow\"><svg"));
  EXPECT_THAT(html, HasSubstr("viewBox=\"0 0 760 380\""));
  EXPECT_THAT(html, HasSubstr("viewBox=\"0 0 350 290\""));
}

TEST(HtmlReport, TablesHaveAllTheirCellsEscaped) {
  Report report = full();
  report.tables = {{.heading = "Settings & seeds",
                    .remark = "nats <per> token",
                    .columns = {"lr", "val loss"},
                    .rows = {{"0.001", "3.2 <b>"}, {"0.002", "\"3.1\""}}},
                   {.heading = "Runs", .remark = "", .columns = {"run"}, .rows = {}}};
  const std::string html = render_html(report);
  EXPECT_TRUE(is_balanced(html));
  for (const char* text :
       {"Settings &amp; seeds", "nats &lt;per&gt; token", ">lr<", ">0.001<", "3.2 &lt;b&gt;"})
    EXPECT_THAT(html, HasSubstr(text));
  EXPECT_THAT(html, Not(HasSubstr("3.2 <b>")));
}

}  // namespace
}  // namespace ingot
