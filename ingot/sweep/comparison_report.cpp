#include "ingot/sweep/comparison_report.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "ingot/console/console.h"
#include "ingot/core/visible_text.h"
#include "ingot/formats/chart/svg_plot.h"
#include "ingot/formats/chart/text_plot.h"
#include "ingot/formats/html_report.h"

namespace ingot {
namespace {

using Table = std::vector<std::vector<std::string>>;  // the first row has the columns' names

constexpr int kColumns = 72, kRows = 14;
constexpr size_t kWidestCell = 48, kMaxCurves = 5;  // render_text has five marks

// The name of a group in tables: "1" for the first.
std::string number_of(size_t group) { return std::to_string(group + 1); }

std::string figure(const std::optional<double>& value, int digits) {
  return value ? fmt::format("{:.{}f}", *value, digits) : "";
}

// Runs' folders differ at their ends.
std::string end_of(const std::string& folder) {
  return folder.size() <= kWidestCell ? folder : "..." + folder.substr(folder.size() - (kWidestCell - 3));
}

Table runs_table(const Comparison& comparison) {
  Table table = {{"group", "run", "seed", "status", "steps", "tokens", "val loss", "bits/byte", "tokens/s",
                  "peak memory"}};
  std::set<std::string> names;
  for (const ComparedRun& run : comparison.runs)
    for (const auto& [name, value] : run.figures) names.insert(name);
  table[0].insert(table[0].end(), names.begin(), names.end());
  for (size_t i = 0; i < comparison.runs.size(); ++i) {
    const ComparedRun& run = comparison.runs[i];
    table.push_back({number_of(comparison.group_of(i)), end_of(run.name), std::to_string(run.seed),
                     run.status, std::to_string(run.steps), format_count(static_cast<double>(run.tokens)),
                     figure(run.val_loss, 4), figure(run.val_bits_per_byte, 4),
                     run.tokens_per_s ? format_count(*run.tokens_per_s) : "",
                     run.peak_rss_bytes ? format_bytes(*run.peak_rss_bytes) : ""});
    for (const std::string& name : names) {
      const auto found = run.figures.find(name);
      table.back().push_back(found == run.figures.end() ? "" : fmt::format("{:.4f}", found->second));
    }
  }
  return table;
}

Table settings_table(const Comparison& comparison) {
  Table table = {{"key"}};
  for (size_t g = 0; g < comparison.groups.size(); ++g) table[0].push_back("group " + number_of(g));
  for (const SettingDifference& setting : comparison.settings) {
    table.push_back({setting.key});
    for (const std::string& value : setting.values)
      table.back().push_back(value.empty() ? "(no such key)" : value);
  }
  return table;
}

std::string value_text(const MeanInterval& value) {
  return value.interval ? fmt::format("{:+.4f} ± {:.4f}", value.mean, value.mean - value.interval->low)
                        : fmt::format("{:+.4f}", value.mean);
}

std::string quantity_text(const std::string& quantity) {
  if (quantity == "val_bits_per_byte") return "bits/byte";
  return quantity == "val_loss" ? "val loss" : quantity == "train_loss" ? "train loss" : quantity;
}

Table differences_table(const Comparison& comparison) {
  Table table = {{"group", "of", "minus group 1", "verdict", "by"}};
  for (const LossDifference& d : comparison.differences)
    table.push_back(
        {number_of(d.group), quantity_text(d.quantity), value_text(d.value), d.verdict(), d.method});
  return table;
}

// Returns the number of characters on a terminal; UTF-8's continuation bytes take no place.
size_t width_of(const std::string& text) {
  return static_cast<size_t>(std::ranges::count_if(text, [](char c) { return (c & 0xC0) != 0x80; }));
}

std::string cell_text(const std::string& value) {
  const std::string text = visible_line(value);
  return width_of(text) <= kWidestCell || text.size() > width_of(text)
             ? text
             : text.substr(0, kWidestCell - 3) + "...";
}

// Returns the table as text, with two blanks between columns. Columns without any value are left out; the
// last column is not shortened.
std::string aligned(const Table& table) {
  std::vector<size_t> widths(table[0].size(), 0);
  for (size_t r = 1; r < table.size(); ++r)
    for (size_t c = 0; c < widths.size(); ++c)
      widths[c] = std::max(widths[c], width_of(cell_text(table[r][c])));
  std::string text;
  for (const auto& row : table) {
    std::string line;
    for (size_t c = 0; c < widths.size(); ++c) {
      if (widths[c] == 0) continue;
      const bool is_last = c + 1 == widths.size();
      const std::string cell = is_last ? visible_line(row[c]) : cell_text(row[c]);
      const size_t width = std::max(widths[c], width_of(table[0][c]));
      line += cell + std::string(is_last ? 0 : width - std::min(width, width_of(cell)) + 2, ' ');
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  return text;
}

PlotSeries smooth_series(const MetricsCurve& curve) {
  return {.name = "", .x = curve.x, .y = smoothed(curve.y, smoothing_width(curve.y.size()))};
}

// The training losses: every run, in the colour of its group.
LinePlot train_plot(const Comparison& comparison) {
  LinePlot plot{.title = "Training loss, smoothed", .x_label = "tokens", .y_label = "nats per token"};
  for (size_t g = 0; g < comparison.groups.size(); ++g)
    for (const size_t run : comparison.groups[g].runs) {
      PlotSeries series = smooth_series(comparison.runs[run].train);
      if (run == comparison.groups[g].runs[0]) series.name = number_of(g) + ": " + comparison.groups[g].name;
      series.color = static_cast<int>(g);
      plot.series.push_back(std::move(series));
    }
  return plot;
}

LinePlot validation_plot(const Comparison& comparison) {
  LinePlot plot{.title = "Validation loss", .x_label = "tokens", .y_label = "nats per token"};
  for (size_t g = 0; g < comparison.groups.size(); ++g)
    for (const size_t run : comparison.groups[g].runs) {
      const MetricsCurve& curve = comparison.runs[run].validation;
      plot.series.push_back({.name = run == comparison.groups[g].runs[0] ? number_of(g) : "",
                             .x = curve.x,
                             .y = curve.y,
                             .style = PlotStyle::kPoints,
                             .color = static_cast<int>(g)});
    }
  return plot;
}

// The curves of the first run of each group.
std::string curves_text(const Comparison& comparison) {
  constexpr std::string_view kMarks = "*o+x#";
  LinePlot plot{.title = "Training loss, smoothed", .x_label = "tokens"};
  std::string legend;
  const size_t shown = std::min(comparison.groups.size(), kMaxCurves);
  for (size_t g = 0; g < shown; ++g) {
    plot.series.push_back(smooth_series(comparison.runs[comparison.groups[g].runs[0]].train));
    legend += fmt::format("{} {}: {}\n", kMarks[g], number_of(g), visible_line(comparison.groups[g].name));
  }
  if (shown < comparison.groups.size())
    legend += fmt::format("{} more groups are not drawn; --html FILE draws all\n",
                          comparison.groups.size() - shown);
  return render_text(plot, kColumns, kRows) + legend;
}

std::string mean_text(const Comparison& comparison, const RunGroup& group) {
  std::vector<double> losses;
  for (const size_t run : group.runs)
    if (comparison.runs[run].val_loss) losses.push_back(*comparison.runs[run].val_loss);
  if (losses.size() < 2) return "";
  const MeanInterval mean = mean_interval(losses);
  return fmt::format("{}: val loss {:.4f} ± {:.4f} over {} seeds", group.name, mean.mean,
                     mean.mean - mean.interval->low, losses.size());
}

std::vector<std::string> sentences(const Comparison& comparison) {
  std::vector<std::string> sentences;
  for (const RunGroup& group : comparison.groups)
    if (std::string text = mean_text(comparison, group); !text.empty()) sentences.push_back(std::move(text));
  if (comparison.settings.empty() && comparison.groups.size() > 1)
    sentences.emplace_back("the configurations are the same");
  sentences.insert(sentences.end(), comparison.remarks.begin(), comparison.remarks.end());
  return sentences;
}

constexpr const char* kRemark =
    "Runs that differ only in train.seed form a group. ± is a 95 % interval by Student's t; differences "
    "whose interval "
    "includes 0 are not told apart.";

ReportTable report_table(const std::string& heading, const Table& table, const std::string& remark) {
  return {
      .heading = heading, .remark = remark, .columns = table[0], .rows = {table.begin() + 1, table.end()}};
}

}  // namespace

std::string comparison_text(const Comparison& comparison) {
  std::string text = curves_text(comparison) + "\n" + aligned(runs_table(comparison));
  if (!comparison.settings.empty()) text += "\n" + aligned(settings_table(comparison));
  if (!comparison.differences.empty()) text += "\n" + aligned(differences_table(comparison));
  text += "\n";
  for (const std::string& sentence : sentences(comparison)) text += "- " + visible_line(sentence) + "\n";
  return text + kRemark + "\n";
}

std::string comparison_html(const Comparison& comparison) {
  Report report;
  report.title = fmt::format("Comparison of {} runs", comparison.runs.size());
  for (const std::string& sentence : sentences(comparison)) report.subtitle += sentence + ". ";
  report.tables.push_back(report_table("Runs", runs_table(comparison), kRemark));
  if (!comparison.differences.empty())
    report.tables.push_back(report_table("Differences", differences_table(comparison), ""));
  if (!comparison.settings.empty())
    report.tables.push_back(report_table("Configurations", settings_table(comparison), ""));
  report.curves = {train_plot(comparison), validation_plot(comparison)};
  return render_html(report);
}

}  // namespace ingot
