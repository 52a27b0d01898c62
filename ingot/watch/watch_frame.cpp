#include "ingot/watch/watch_frame.h"

#include <fmt/core.h>

#include <algorithm>
#include <iterator>
#include <string_view>
#include <vector>

#include "ingot/console/console.h"
#include "ingot/console/live_line.h"
#include "ingot/core/visible_text.h"
#include "ingot/formats/chart/text_plot.h"

namespace ingot {
namespace {

constexpr int kSampleLines = 5;
constexpr int kLeastPlotRows = 4;
constexpr int kPlotFrame = 4;     // lines of a plot outside its rows: title, axis, its labels, an empty line
constexpr int kLabelCells = 14;   // of the y axis
constexpr size_t kMaxCurves = 5;  // render_text has five marks

std::optional<double> last_of(const RunView& run, std::string_view key) {
  const BoundedSeries* series = run.metrics().find(key);
  return series ? std::optional(series->last()) : std::nullopt;
}

// Returns the lines of the text, each cut to the width.
std::vector<std::string> cut_lines(const std::string& text, int columns) {
  std::vector<std::string> lines;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    lines.push_back(fit_cells(text.substr(begin, end - begin), columns));
    begin = end + 1;
  }
  return lines;
}

// Breaks a status line at " | " where it is wider than the window.
std::vector<std::string> wrapped_line(std::string line, int columns) {
  constexpr std::string_view kBreak = " | ", kIndent = "    ";
  std::vector<std::string> lines;
  while (display_cells(line) > columns) {
    size_t end = line.npos;
    for (size_t at = line.find(kBreak); at != line.npos && display_cells(line.substr(0, at)) <= columns;
         at = line.find(kBreak, at + 1))
      end = at;
    if (end == line.npos) break;
    lines.push_back(line.substr(0, end));
    line = std::string(kIndent) + line.substr(end + kBreak.size());
  }
  lines.push_back(fit_cells(line, columns));
  return lines;
}

PlotSeries loss_series(const RunView& run) {
  PlotSeries series;
  const BoundedSeries* loss = run.metrics().find("loss");
  if (!loss) return series;
  for (const SeriesBucket& bucket : loss->buckets()) {
    series.x.push_back(bucket.x);
    series.y.push_back(bucket.mean());
  }
  series.y = smoothed(series.y, smoothing_width(series.y.size()));
  return series;
}

PlotSeries validation_series(const RunView& run) {
  PlotSeries series;
  if (const BoundedSeries* loss = run.metrics().find("val_loss"))
    for (const SeriesBucket& bucket : loss->buckets()) {
      series.x.push_back(bucket.x);
      series.y.push_back(bucket.mean());
    }
  return series;
}

std::string plot_text(RunSet& runs, int columns, int rows) {
  LinePlot plot;
  plot.x_label = "step";
  if (runs.size() == 1) {
    plot.title = "loss: * train, smoothed   o validation";
    plot.series = {loss_series(runs.run(0)), validation_series(runs.run(0))};
  } else {
    plot.title = "training loss, smoothed:";
    for (size_t i = 0; i < std::min(runs.size(), kMaxCurves); ++i) {
      plot.title += fmt::format("  {} {}", "*o+x#"[i], visible_line(runs.run(i).name()));
      plot.series.push_back(loss_series(runs.run(i)));
    }
  }
  return render_text(plot, columns, rows);
}

std::vector<std::string> sample_lines(const RunView& run, int columns) {
  const std::vector<std::string> files = run.samples();
  if (files.empty()) return {};
  const std::string text = visible_text(run.sample(files.back()).value_or(""));
  std::vector<std::string> lines = cut_lines(text, columns);
  std::erase_if(lines,
                [](const std::string& line) { return line.find_first_not_of(" \t") == std::string::npos; });
  if (lines.size() > kSampleLines) lines.resize(kSampleLines);
  lines.insert(lines.begin(), {"", fit_cells(files.back() + ":", columns)});
  return lines;
}

}  // namespace

std::string fit_cells(const std::string& text, int cells) {
  if (display_cells(text) <= cells) return text;
  std::string out = text;
  while (!out.empty() && display_cells(out) > cells - 3) {
    while (out.size() > 1 && (static_cast<unsigned char>(out.back()) & 0xc0) == 0x80) out.pop_back();
    out.pop_back();
  }
  return out + std::string("...").substr(0, static_cast<size_t>(std::clamp(cells, 0, 3)));
}

std::string watch_line(const RunView& run, int64_t now_s) {
  const RunStatus& status = run.status();
  std::string line = fmt::format("{}  {}  step {}", visible_line(run.name()), status.status, status.steps);
  if (const auto total = run.total_steps())
    line += fmt::format("/{} {:.1f}%", *total,
                        100.0 * static_cast<double>(status.steps) / static_cast<double>(*total));
  const auto add = [&](std::string_view key, auto text) {
    if (const auto value = last_of(run, key)) line += " | " + text(*value);
  };
  if (status.loss) line += fmt::format(" | loss {:.4f}", *status.loss);
  add("val_loss", [](double v) { return fmt::format("val {:.4f}", v); });
  if (!run.has_ended()) {
    if (const auto left = run.seconds_left()) line += fmt::format(" | about {} left", format_time(*left));
    add("tokens_per_s", [](double v) { return format_count(v) + " tok/s"; });
    add("mfu", [](double v) { return fmt::format("mfu {:.1f}%", 100 * v); });
    add("grad_norm", [](double v) { return fmt::format("norm {:.2f}", v); });
    add("lr", [](double v) { return "lr " + format_rate(v); });
    add("rss_bytes", [](double v) { return format_bytes(v); });
  }
  const std::string remark = remark_on(status);
  if (status.status != "running" && !remark.empty()) line += " | " + remark;
  // The sign of life of a run on another machine is all that is known about it.
  if (status.last_sign_s &&
      (run.has_ended() || now_s - *status.last_sign_s >= 10 || status.status != "running"))
    line += fmt::format(" | last sign {}", last_sign_text(status, now_s));
  return line;
}

std::string watch_frame(RunSet& runs, const FrameSize& size, int64_t now_s) {
  std::vector<std::string> lines;
  for (size_t i = 0; i < runs.size(); ++i) {
    std::ranges::move(wrapped_line(watch_line(runs.run(i), now_s), size.columns), std::back_inserter(lines));
    if (!runs.run(i).incidents().empty())
      lines.push_back(fit_cells("  " + runs.run(i).incidents(), size.columns));
  }
  if (runs.size() == 0) lines.push_back(fit_cells("there are no runs yet", size.columns));
  const auto room = [&] { return size.rows - static_cast<int>(lines.size()); };
  std::vector<std::string> sample;
  if (runs.size() > 0) sample = sample_lines(runs.run(0), size.columns);
  if (room() < kPlotFrame + kLeastPlotRows + static_cast<int>(sample.size())) sample.clear();
  const int plot_rows = room() - kPlotFrame - static_cast<int>(sample.size());
  if (runs.size() > 0 && plot_rows >= kLeastPlotRows && size.columns >= 16 + kLabelCells) {
    lines.emplace_back();
    const std::string plot = plot_text(runs, size.columns - kLabelCells, plot_rows);
    for (std::string& line : cut_lines(plot, size.columns)) lines.push_back(std::move(line));
  }
  lines.insert(lines.end(), sample.begin(), sample.end());
  if (static_cast<int>(lines.size()) > size.rows) lines.resize(static_cast<size_t>(std::max(size.rows, 1)));
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  return text;
}

}  // namespace ingot
