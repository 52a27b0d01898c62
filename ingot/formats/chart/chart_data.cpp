#include "ingot/formats/chart/chart_data.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "ingot/formats/chart/bounded_series.h"

namespace ingot {
namespace {

using nlohmann::ordered_json;

constexpr size_t kMaxPoints = 2000;

const char* style_name(PlotStyle style) {
  switch (style) {
    case PlotStyle::kLine:
      return "line";
    case PlotStyle::kFaint:
      return "faint";
    case PlotStyle::kPoints:
      return "points";
  }
  return "line";
}

// Rounds to six digits, which are enough for a curve; null if the value is not finite.
ordered_json rounded(double value) {
  if (!std::isfinite(value)) return nullptr;
  return std::stod(fmt::format("{:.6g}", value));
}

ordered_json series_data(const PlotSeries& series) {
  ordered_json px = ordered_json::array(), py = px, low = px, high = px;
  if (series.x.size() <= kMaxPoints) {
    for (size_t i = 0; i < series.x.size(); ++i) {
      if (!std::isfinite(series.x[i])) continue;
      px.push_back(series.x[i]);
      py.push_back(rounded(series.y[i]));
    }
  } else {
    BoundedSeries bounded(kMaxPoints);
    for (size_t i = 0; i < series.x.size(); ++i)
      if (std::isfinite(series.x[i]) && std::isfinite(series.y[i])) bounded.add(series.x[i], series.y[i]);
    for (const SeriesBucket& bucket : bounded.buckets()) {
      px.push_back(bucket.x);
      py.push_back(rounded(bucket.mean()));
      low.push_back(rounded(bucket.low));
      high.push_back(rounded(bucket.high));
    }
  }
  ordered_json out = {{"name", series.name}, {"color", series.color}, {"style", style_name(series.style)}};
  out["px"] = std::move(px);
  out["py"] = std::move(py);
  if (!low.empty()) {
    out["low"] = std::move(low);
    out["high"] = std::move(high);
  }
  return out;
}

}  // namespace

bool is_interactive(const LinePlot& plot) {
  return plot.x_names.empty() &&
         std::ranges::all_of(plot.series, [](const PlotSeries& s) { return s.low.empty(); });
}

std::string chart_data(const LinePlot& plot) {
  ordered_json series = ordered_json::array();
  for (const PlotSeries& one : plot.series) series.push_back(series_data(one));
  const ordered_json json = {{"title", plot.title},   {"unit", plot.y_label},  {"x", plot.x_label},
                             {"logX", plot.is_log_x}, {"logY", plot.is_log_y}, {"series", std::move(series)}};
  std::string out;
  for (const char c : json.dump(-1, ' ', false, ordered_json::error_handler_t::replace)) {
    if (c == '<')
      out += "\\u003c";
    else if (c == '>')
      out += "\\u003e";
    else if (c == '&')
      out += "\\u0026";
    else
      out += c;
  }
  return out;
}

}  // namespace ingot
