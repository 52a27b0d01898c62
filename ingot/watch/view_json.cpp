#include "ingot/watch/view_json.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "ingot/core/visible_text.h"
#include "ingot/launch/incident.h"
#include "ingot/run/record/process_identity.h"
#include "ingot/run/record/report_provenance.h"
#include "ingot/run/record/utc_time.h"
#include "ingot/sweep/compared_run.h"

namespace ingot {
namespace {

using nlohmann::ordered_json;

std::string dumped(const ordered_json& json) {
  return json.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
}

std::string number(double value, const char* format) {
  return std::isfinite(value) ? fmt::format(fmt::runtime(format), value) : "null";
}

constexpr const char* kStep = "{:.15g}";
constexpr const char* kValue = "{:.6g}";

ordered_json last_of(const MetricsStore& store, std::string_view key) {
  const BoundedSeries* series = store.find(key);
  if (!series || !std::isfinite(series->last())) return nullptr;
  return series->last();
}

// Returns the value of a line of config.toml without the comment behind it.
std::string without_comment(const std::string& text) {
  bool is_quoted = false;
  size_t end = 0;
  for (; end < text.size() && (is_quoted || text[end] != '#'); ++end)
    if (text[end] == '"' && (end == 0 || text[end - 1] != '\\')) is_quoted = !is_quoted;
  const size_t last = text.find_last_not_of(" \t\r", end == 0 ? 0 : end - 1);
  return end == 0 || last == std::string::npos ? "" : text.substr(0, last + 1);
}

template <typename Value>
std::string column(const BoundedSeries& series, const char* format, Value value) {
  std::string out = "[";
  for (const SeriesBucket& bucket : series.buckets())
    out += (out.size() > 1 ? "," : "") + number(value(bucket), format);
  return out + "]";
}

std::string one_series(const BoundedSeries& series) {
  std::string out = "{\"x\":" + column(series, kStep, [](const SeriesBucket& b) { return b.x; }) +
                    ",\"mean\":" + column(series, kValue, [](const SeriesBucket& b) { return b.mean(); });
  if (series.points_per_bucket() > 1)
    out += ",\"low\":" + column(series, kValue, [](const SeriesBucket& b) { return b.low; }) +
           ",\"high\":" + column(series, kValue, [](const SeriesBucket& b) { return b.high; });
  return out + "}";
}

// Returns the events whose number is above `after`.
std::string events_text(const MetricsStore& store, int64_t after) {
  ordered_json out = ordered_json::array();
  int64_t number = store.event_count() - static_cast<int64_t>(store.events().size());
  for (const RunEvent& event : store.events())
    if (++number > after) out.push_back({event.step, event.name, event.reason});
  return dumped(out);
}

}  // namespace

std::string runs_json(RunSet& runs) {
  ordered_json all = ordered_json::array();
  const int64_t now_s = unix_now_s();
  for (size_t id = 0; id < runs.size(); ++id) {
    const RunView& run = runs.run(id);
    const RunStatus& status = run.status();
    ordered_json one = {{"id", id},
                        {"name", run.name()},
                        {"status", status.status},
                        {"steps", status.steps},
                        {"total_steps", nullptr},
                        {"loss", nullptr},
                        {"best_val_loss", nullptr},
                        {"val_loss", last_of(run.metrics(), "val_loss")},
                        {"tokens_per_s", last_of(run.metrics(), "tokens_per_s")},
                        {"eta_s", nullptr},
                        {"last_sign", nullptr},
                        {"remark", remark_on(status)},
                        {"error", status.error},
                        {"incidents", run.incidents()},
                        {"has_ended", run.has_ended()}};
    if (const auto total = run.total_steps()) one["total_steps"] = *total;
    if (status.loss && std::isfinite(*status.loss)) one["loss"] = *status.loss;
    if (status.best_val_loss && std::isfinite(*status.best_val_loss))
      one["best_val_loss"] = *status.best_val_loss;
    if (const auto left = run.seconds_left(); left && status.status == "running") one["eta_s"] = *left;
    if (status.last_sign_s)
      one["last_sign"] = run.has_ended() ? *status.last_sign_s : std::min(now_s, *status.last_sign_s);
    all.push_back(std::move(one));
  }
  return dumped({{"host", this_process().host}, {"left_out", runs.left_out()}, {"runs", all}});
}

std::string run_json(const RunView& run) {
  ordered_json config = ordered_json::object(), record = ordered_json::array();
  for (const auto& [key, value] : settings_of(run.config())) config[key] = without_comment(value);
  // The record was found to be a plain file when the status was read.
  if (run.status().status != "gone" && run.status().status != "unreadable") {
    for (const ReportRow& row : provenance_rows(run.folder() / "run.json"))
      record.push_back({row.name, row.value});
  }
  ordered_json incidents = ordered_json::array();
  if (!run.incidents().empty())
    for (const Incident& incident : read_incidents(run.folder()))
      incidents.push_back(
          {utc_text(incident.time_s),
           visible_line(describe(incident) + (incident.end.empty() ? "" : "; " + incident.end))});
  return dumped(
      {{"config", config}, {"record", record}, {"incidents", incidents}, {"samples", run.samples()}});
}

std::string series_json(const MetricsStore& store, const std::vector<std::string>& keys) {
  std::string out = "{";
  for (const auto& [key, series] : store.series()) {
    if (!keys.empty() && std::ranges::find(keys, key) == keys.end()) continue;
    out += (out.size() > 1 ? "," : "") + dumped(key) + ":" + one_series(series);
  }
  return out + "}";
}

std::string snapshot_json(size_t id, const RunView& run) {
  const MetricsStore& store = run.metrics();
  return fmt::format(R"({{"run":{},"generation":{},"line":{},"fraction":{:.4f},"series":{},"events":{}}})",
                     id, store.generation(), store.lines(), run.read_fraction(), series_json(store, {}),
                     events_text(store, 0));
}

std::string lines_json(size_t id, const MetricsStore& store, int64_t line, int64_t event) {
  std::string out = fmt::format(R"({{"run":{},"lines":[)", id);
  bool is_first = true;
  for (const NumbersLine& numbers : store.newest()) {
    if (numbers.number <= line) continue;
    out += (is_first ? "[" : ",[") + number(numbers.step, kStep) + ",{";
    is_first = false;
    for (size_t i = 0; i < numbers.values.size(); ++i)
      out += (i > 0 ? "," : "") + dumped(numbers.values[i].first) + ":" +
             number(numbers.values[i].second, kValue);
    out += "}]";
  }
  return out + "],\"events\":" + events_text(store, event) + "}";
}

std::string samples_json(size_t id, const std::vector<std::string>& files) {
  return dumped({{"run", id}, {"samples", files}});
}

}  // namespace ingot
