#include "ingot/sweep/sweep_report.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "ingot/formats/html_report.h"

namespace ingot {
namespace {

constexpr size_t kMaxLines = 6;

std::string values_text(const SweepSpec& spec, const std::vector<std::string>& values, size_t without) {
  std::string text;
  for (size_t i = 0; i < values.size(); ++i)
    if (i != without) text += fmt::format("{}{}={}", text.empty() ? "" : " ", spec.vary[i].key, values[i]);
  return text;
}

std::string loss_text(const SettingResult& setting) {
  if (!setting.has_loss()) return setting.status;
  const auto& interval = setting.loss.interval;
  return interval ? fmt::format("{:.4f} ± {:.4f}", setting.loss.mean, setting.loss.mean - interval->low)
                  : fmt::format("{:.4f}", setting.loss.mean);
}

std::string difference_text(const SweepResult& result, size_t s) {
  const SettingResult& setting = result.settings[s];
  if (s == result.best) return "best";
  if (!setting.has_loss()) return "";
  const auto& interval = setting.to_best.interval;
  if (!interval) return fmt::format("{:+.4f}", setting.to_best.mean);
  return fmt::format("{:+.4f} ± {:.4f}{}", setting.to_best.mean, setting.to_best.mean - interval->low,
                     interval->contains(0) ? ", not told apart" : "");
}

std::vector<std::string> table_columns(const SweepSpec& spec) {
  std::vector<std::string> columns;
  for (const Vary& vary : spec.vary) columns.push_back(vary.key);
  columns.insert(columns.end(), {"seeds", "val loss", "difference to the best", "status"});
  return columns;
}

std::vector<std::vector<std::string>> table_rows(const SweepResult& result) {
  std::vector<std::vector<std::string>> rows;
  for (size_t s = 0; s < result.settings.size(); ++s) {
    const SettingResult& setting = result.settings[s];
    std::vector<std::string> row = setting.values;
    row.push_back(std::to_string(setting.losses.size()));
    row.push_back(loss_text(setting));
    row.push_back(difference_text(result, s));
    row.push_back(setting.status);
    rows.push_back(std::move(row));
  }
  return rows;
}

std::string remark(const SweepRecord& record) {
  std::string text =
      "Val loss: nats per token of the last evaluation, the mean over the seeds. ±: 95 % intervals by "
      "Student's t; "
      "differences are paired by seed.";
  if (record.halving_eta > 1)
    text += fmt::format(
        " Successive halving: after each round the best 1/{} of the settings went on; the others have "
        "the status \"stopped\" and no final loss.",
        record.halving_eta);
  return text;
}

// The sentences below the table.
std::vector<std::string> conclusions(const SweepRecord& record, const SweepResult& result) {
  const SweepSpec& spec = record.spec;
  std::vector<std::string> sentences;
  if (!result.best) return {"No setting has a loss yet."};
  const SettingResult& best = result.settings[*result.best];
  const std::string setting = values_text(spec, best.values, spec.vary.size());
  sentences.push_back(
      fmt::format("Best: {} with val loss {}.", setting.empty() ? "base" : setting, loss_text(best)));
  if (spec.seeds < 2)
    sentences.emplace_back(
        "One seed: nothing says how far two runs of one setting differ, so small differences mean nothing; "
        "--seeds 3 gives intervals.");
  if (!result.not_told_apart.empty())
    sentences.push_back(
        result.not_told_apart.size() == 1
            ? "One other setting is not told apart from it."
            : fmt::format("{} other settings are not told apart from it.", result.not_told_apart.size()));
  for (const KeyOptimum& optimum : result.optima)
    if (spec.seeds > 1 || optimum.fit.is_at_border)
      sentences.push_back(fmt::format("Optimum of {}: {}.", optimum.key, optimum_text(optimum)));
  return sentences;
}

std::string markdown_row(const std::vector<std::string>& cells) {
  std::string row = "|";
  for (const std::string& cell : cells) {
    std::string escaped;
    for (const char c : cell) escaped += c == '|' ? std::string("\\|") : std::string(1, c);
    row += " " + escaped + " |";
  }
  return row + "\n";
}

// The places of a key's values on the x axis: the numbers, or 0, 1, ... for texts.
std::vector<double> places_of(const Vary& vary) {
  if (auto numbers = vary.numbers()) return *std::move(numbers);
  std::vector<double> places(vary.values.size());
  for (size_t i = 0; i < places.size(); ++i) places[i] = static_cast<double>(i);
  return places;
}

}  // namespace

std::vector<LinePlot> sweep_plots(const SweepSpec& spec, const SweepResult& result) {
  std::vector<LinePlot> plots;
  for (size_t key = 0; key < spec.vary.size(); ++key) {
    const Vary& vary = spec.vary[key];
    const std::vector<double> places = places_of(vary);
    std::map<std::string, std::pair<double, PlotSeries>> lines;  // by the other keys: lowest loss, points
    for (const SettingResult& setting : result.settings) {
      if (!setting.has_loss()) continue;
      const std::string name = values_text(spec, setting.values, key);
      auto& [lowest, series] =
          lines.try_emplace(name, std::numeric_limits<double>::infinity(), PlotSeries{}).first->second;
      series.name = name;
      series.style = PlotStyle::kPoints;
      const auto at = std::ranges::find(vary.values, setting.values[key]) - vary.values.begin();
      series.x.push_back(places[static_cast<size_t>(at)]);
      series.y.push_back(setting.loss.mean);
      const Interval bar = setting.loss.interval.value_or(Interval{setting.loss.mean, setting.loss.mean});
      series.low.push_back(bar.low);
      series.high.push_back(bar.high);
      lowest = std::min(lowest, setting.loss.mean);
    }
    std::vector<std::pair<double, PlotSeries>> ranked;
    for (auto& [name, line] : lines) ranked.push_back(std::move(line));
    std::ranges::stable_sort(ranked, {}, [](const auto& line) { return line.first; });
    LinePlot plot{
        .title = "Validation loss over " + vary.key, .x_label = vary.key, .y_label = "nats per token"};
    if (ranked.size() > kMaxLines)
      plot.title += fmt::format(" (the best {} of {} lines)", kMaxLines, ranked.size());
    ranked.resize(std::min(ranked.size(), kMaxLines));
    for (auto& [lowest, series] : ranked) plot.series.push_back(std::move(series));
    plot.is_log_x = vary.spans_factors();
    if (!vary.numbers()) plot.x_names = vary.values;
    plots.push_back(std::move(plot));
  }
  return plots;
}

std::string sweep_markdown(const SweepRecord& record, const std::vector<SweepRun>& runs,
                           const std::vector<RunResult>& results) {
  const SweepResult result = judge_sweep(record.spec, runs, results);
  const std::vector<std::string> columns = table_columns(record.spec);
  std::string text = markdown_row(columns) + "|";
  for (size_t i = 0; i < columns.size(); ++i) text += "---|";
  text += "\n";
  for (const auto& row : table_rows(result)) text += markdown_row(row);
  text += "\n";
  for (const std::string& sentence : conclusions(record, result)) text += "- " + sentence + "\n";
  return text + "\n" + remark(record) + "\n\n`" + record.command + "`\n";
}

std::string sweep_report(const SweepRecord& record, const std::vector<SweepRun>& runs,
                         const std::vector<RunResult>& results) {
  const SweepResult result = judge_sweep(record.spec, runs, results);
  Report report;
  report.title = "Sweep of " + record.spec.source;
  for (const std::string& sentence : conclusions(record, result))
    report.subtitle += (report.subtitle.empty() ? "" : " ") + sentence;
  report.tables.push_back({.heading = "Settings",
                           .remark = remark(record),
                           .columns = table_columns(record.spec),
                           .rows = table_rows(result)});
  report.curves = sweep_plots(record.spec, result);
  ReportTable all{.heading = "Runs", .columns = {"run", "status", "steps", "tokens", "val loss"}};
  for (size_t i = 0; i < runs.size(); ++i)
    all.rows.push_back(
        {"runs/" + runs[i].name, results[i].status, std::to_string(results[i].steps),
         std::to_string(results[i].tokens),
         results[i].val_loss ? fmt::format("{:.4f}", *results[i].val_loss) : results[i].error});
  report.tables.push_back(std::move(all));
  report.commands = {record.command};
  return render_html(report);
}

}  // namespace ingot
