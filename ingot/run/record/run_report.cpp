#include "ingot/run/record/run_report.h"

#include <algorithm>
#include <exception>
#include <iterator>

#include "ingot/checkpoint/checkpoint_store.h"
#include "ingot/config/config_toml.h"
#include "ingot/core/file.h"
#include "ingot/core/machine.h"
#include "ingot/core/median.h"
#include "ingot/data/builtin_corpus.h"
#include "ingot/formats/chart/metrics_store.h"
#include "ingot/formats/chart/svg_plot.h"
#include "ingot/formats/html_report.h"
#include "ingot/formats/metrics_log.h"
#include "ingot/run/record/final_summary.h"
#include "ingot/run/record/report_provenance.h"

namespace ingot {
namespace {

namespace fs = std::filesystem;

PlotSeries series(const std::string& name, MetricsCurve curve, PlotStyle style, int color) {
  return {.name = name, .x = std::move(curve.x), .y = std::move(curve.y), .style = style, .color = color};
}

// The means of the buckets; empty if there is no such series.
MetricsCurve curve_of(const BoundedSeries* series) {
  MetricsCurve curve;
  if (!series) return curve;
  for (const SeriesBucket& bucket : series->buckets()) {
    curve.x.push_back(bucket.x);
    curve.y.push_back(bucket.mean());
  }
  return curve;
}

// The rate of one step says little: the last one may have waited for a save.
std::optional<double> median(const MetricsStore& log, std::string_view key) {
  std::vector<double> values = curve_of(log.find(key)).y;
  return values.empty() ? std::nullopt : std::optional(median_of(values));
}

LinePlot loss_plot(const BoundedSeries* losses, const BoundedSeries* validation) {
  MetricsCurve train = curve_of(losses);
  MetricsCurve smooth = train;
  smooth.y = smoothed(train.y, smoothing_width(train.y.size()));
  LinePlot plot;
  plot.title = "Loss";
  plot.x_label = "step";
  plot.y_label = "nats per token";
  plot.series.push_back(series("", std::move(train), PlotStyle::kFaint, 0));
  plot.series.push_back(series("train", std::move(smooth), PlotStyle::kLine, 0));
  plot.series.push_back(series("validation", curve_of(validation), PlotStyle::kPoints, 1));
  return plot;
}

LinePlot plain_plot(const MetricsStore& log, const char* title, const char* key, const char* label,
                    bool is_log) {
  LinePlot plot;
  plot.title = title;
  plot.x_label = "step";
  plot.y_label = label;
  plot.is_log_y = is_log;
  plot.series.push_back(series("", curve_of(log.find(key)), PlotStyle::kLine, 0));
  return plot;
}

// Returns whether the values of the key differ; a constant needs no curve.
bool varies(const MetricsStore& log, const char* key) {
  const BoundedSeries* found = log.find(key);
  if (!found || found->buckets().empty()) return false;
  const double first = found->buckets().front().low;
  return std::ranges::any_of(found->buckets(), [&](const SeriesBucket& bucket) {
    return bucket.low != first || bucket.high != first;
  });
}

// Plots the time of a step's phases that do not nest.
LinePlot phases_plot(const MetricsStore& log) {
  LinePlot plot;
  plot.title = "Time of a step";
  plot.x_label = "step";
  plot.y_label = "milliseconds";
  for (const char* phase : {"forward", "backward", "optimizer"}) {
    MetricsCurve curve = curve_of(log.find(fmt::format("ms_{}", phase)));
    curve.y = smoothed(curve.y, smoothing_width(curve.y.size()));
    plot.series.push_back(series(phase, std::move(curve), PlotStyle::kLine, -1));
  }
  plot.series.push_back(
      series("waiting for data", curve_of(log.find("loader_wait_ms")), PlotStyle::kLine, -1));
  return plot;
}

// Returns the names behind KEY/ of the log's fields.
std::vector<std::string> names_below(const MetricsStore& log, const std::string& key) {
  std::vector<std::string> names;
  for (const auto& [field, series] : log.series())
    if (field.starts_with(key + "/")) names.push_back(field.substr(key.size() + 1));
  return names;
}

// Returns the name of the parameter of a line of params.jsonl, as JSON writes it.
std::string_view param_of(std::string_view line) {
  constexpr std::string_view kKey = "\"param\":\"";
  const size_t found = line.find(kKey);
  if (found == line.npos) return "";
  line.remove_prefix(found + kKey.size());
  return line.substr(0, line.find('"'));
}

// Returns embedding, head, and the projections of the first and the last block, enough to see a diverging
// layer.
std::vector<std::string> shown_params(const fs::path& params) {
  std::vector<std::string> names;
  std::string last_block;
  bool is_first_step = true;
  visit_metrics_lines(params, [&](std::string_view line) {
    if (!is_first_step) return;
    const std::string name(param_of(line));
    is_first_step = std::ranges::find(names, name) == names.end();
    if (!is_first_step) return;
    names.push_back(name);
    if (name.starts_with("blocks.")) last_block = name.substr(0, name.find('.', 7) + 1);
  });
  std::erase_if(names, [&](const std::string& name) {
    if (name == "embedding.weight" || name == "head.weight") return false;
    const bool is_end = name.starts_with("blocks.0.") || name.starts_with(last_block);
    return !is_end || !(name.ends_with("proj.weight") || name.ends_with("down.weight"));
  });
  return names;
}

// Plots the fields KEY/NAME.
LinePlot family_plot(const MetricsStore& log, const std::vector<std::string>& names, const char* title,
                     const char* key, bool is_log) {
  LinePlot plot;
  plot.title = title;
  plot.x_label = "step";
  plot.is_log_y = is_log;
  for (const std::string& name : names)
    plot.series.push_back(
        series(name, curve_of(log.find(fmt::format("{}/{}", key, name))), PlotStyle::kLine, -1));
  return plot;
}

std::vector<LinePlot> params_curves(const fs::path& params) {
  const std::vector<std::string> names = shown_params(params);
  if (names.empty()) return {};
  MetricsStore log;
  visit_metrics_lines(params, [&](std::string_view line) {
    if (std::ranges::find(names, param_of(line)) != names.end()) log.add(line);
  });
  return {family_plot(log, names, "Gradient norm by parameter, before clipping", "grad_norm", true),
          family_plot(log, names, "Update / weight", "update_ratio", true),
          family_plot(log, names, "Weight norm", "weight_norm", false)};
}

// Plots the loss of the checked tokens in f32, and the training path's loss of the same tokens.
LinePlot checked_loss_plot(const MetricsStore& log) {
  LinePlot plot;
  plot.title = "Loss checked in f32";
  plot.x_label = "step";
  plot.y_label = "nats per token";
  MetricsCurve exact = curve_of(log.find("raw_ce_fp32"));
  MetricsCurve trained = exact;
  const MetricsCurve gap = curve_of(log.find("raw_ce_gap"));
  for (size_t i = 0; i < std::min(trained.y.size(), gap.y.size()); ++i) trained.y[i] += gap.y[i];
  plot.series.push_back(series("raw_ce_fp32", std::move(exact), PlotStyle::kLine, 0));
  plot.series.push_back(series("trained", std::move(trained), PlotStyle::kPoints, 1));
  return plot;
}

std::vector<LinePlot> run_curves(const MetricsStore& log) {
  std::vector<LinePlot> curves = {loss_plot(log.find("loss"), log.find("val_loss")),
                                  plain_plot(log, "Top-1", "top1", "fraction of tokens", false),
                                  plain_plot(log, "Gradient norm", "grad_norm", "before clipping", true),
                                  plain_plot(log, "Learning rate", "lr", "", false)};
  for (const auto& [key, title] :
       {std::pair("val_loss", "Loss of each validation text"), std::pair("task", "Tasks")})
    if (const auto names = names_below(log, key); !names.empty())
      curves.push_back(family_plot(log, names, title, key, false));
  if (log.find("raw_ce_fp32")) curves.push_back(checked_loss_plot(log));
  if (varies(log, "momentum")) curves.push_back(plain_plot(log, "Momentum", "momentum", "", false));
  if (varies(log, "step_tokens"))
    curves.push_back(plain_plot(log, "Tokens per step", "step_tokens", "", false));
  curves.push_back(plain_plot(log, "Speed", "tokens_per_s", "tokens per second", false));
  curves.push_back(phases_plot(log));
  return curves;
}

// Counts the guard's events by kind.
std::vector<ReportRow> event_rows(const MetricsStore& log) {
  std::vector<ReportRow> out;
  for (const auto& [name, count] : log.events_by_name())
    out.push_back({fmt::format("events: {}", name), fmt::format("{}", count)});
  return out;
}

// Returns the last value of the key.
std::optional<double> last(const MetricsStore& log, std::string_view key) {
  const BoundedSeries* found = log.find(key);
  return found ? std::optional(found->last()) : std::nullopt;
}

std::vector<ReportSample> newest_samples(const fs::path& folder) {
  std::vector<fs::path> files;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) files.push_back(entry.path());
  if (files.empty()) return {};
  std::ranges::sort(files);
  return {{.caption = files.back().stem().string(), .prompt = "", .text = read_file(files.back())}};
}

std::vector<ReportRow> machine_rows() {
  const MachineInfo machine = machine_info();
  std::string instructions;
  for (const std::string& name : machine.instructions)
    instructions += (instructions.empty() ? "" : " ") + name;
  return {{"processor", fmt::format("{}, {} cores", machine.cpu, machine.cores)},
          {"instructions", instructions},
          {"memory", format_bytes(static_cast<double>(machine.memory_bytes))},
          {"system", machine.system},
          {"compiler", machine.compiler}};
}

void write_report(const RunFolder& folder, const RunConfig& config, const RunEnd& end, Console& console) {
  MetricsStore log;
  visit_metrics_lines(folder.metrics(), [&](std::string_view line) { log.add(line); });
  Report report;
  if (end.status != "completed")
    report.notice =
        "This run " + (end.error.empty() ? "was " + end.status + "." : end.status + ": " + end.error);
  report.title = folder.path().filename().string();
  report.subtitle =
      fmt::format("{} layers x {} wide, {} parameters, {}", config.model.layers, config.model.width,
                  format_count(static_cast<double>(config.model.resolved().parameters())),
                  name(config.precision.compute));
  const auto add = [&](std::vector<ReportRow>& to, const char* title, std::string_view key,
                       const char* format) {
    if (const auto value = last(log, key)) to.push_back({title, fmt::format(fmt::runtime(format), *value)});
  };
  add(report.highlights, "validation loss", "val_loss", "{:.4f}");
  add(report.highlights, "bits per byte", "val_bits_per_byte", "{:.3f}");
  add(report.highlights, "top-1", "val_top1", "{:.3f}");
  if (const auto rate = median(log, "tokens_per_s"))
    report.highlights.push_back({"tokens/s (median)", fmt::format("{:.0f}", *rate)});
  if (log.lines() > 0) report.summary.push_back({"steps", fmt::format("{:.0f}", log.last_step())});
  add(report.summary, "tokens", "tokens", "{:.0f}");
  add(report.summary, "training loss", "loss", "{:.4f}");
  if (const auto step_ms = median(log, "step_ms"))
    report.summary.push_back({"step (median)", fmt::format("{:.1f} ms", *step_ms)});
  add(report.summary, "MFU", "mfu", "{:.3f}");
  if (const auto best = best_checkpoint(folder.checkpoints()))
    report.summary.push_back({"best checkpoint", fmt::format("step {} (checkpoints/best)", best->step)});
  std::string verdict;
  if (end.val_documents && !end.val_documents->empty() &&
      end.val_documents->size_bytes() <= kYardstickBytes) {
    const Yardsticks yardsticks = compression_yardsticks(*end.val_documents);
    verdict = compression_verdict(last(log, "val_bits_per_byte").value_or(0), yardsticks.measured);
    for (const Yardstick& yardstick : yardsticks.measured) {
      const std::string text = fmt::format("{:.3f} bits per byte", yardstick.bits_per_byte);
      report.summary.push_back({yardstick.name + " of the same text", text});
    }
    if (!yardsticks.missing.empty()) console.line(yardsticks.missing);
  }
  for (ReportRow& row : event_rows(log)) report.summary.push_back(std::move(row));
  report.curves = run_curves(log);
  std::ranges::move(params_curves(folder.params()), std::back_inserter(report.curves));
  report.samples = newest_samples(folder.samples());
  report.config = config_toml(config, ConfigDocs::kNone);
  report.machine = machine_rows();
  report.provenance = provenance_rows(folder.summary());
  report.commands = next_commands(folder.path(), config);
  write_file(folder.report(), render_html(report));
  console.line(
      fmt::format("curves and samples: {} and {}", folder.loss_plot().string(), folder.report().string()));
  if (!verdict.empty()) console.line(verdict);
  if (end.status == "completed" || end.status == "stopped") {
    console.line("next:");
    for (const std::string& command : report.commands) console.line("  " + command);
  }
  write_file(folder.loss_plot(), render_svg(report.curves.front()));
}

}  // namespace

void write_loss_plot(const RunFolder& folder, const RunLog::LossCurves& losses) {
  write_file(folder.loss_plot(), render_svg(loss_plot(&losses.train, &losses.validation)));
}

void write_run_report(const RunFolder& folder, const RunConfig& config, const RunEnd& end,
                      Console& console) noexcept {
  try {
    write_report(folder, config, end, console);
  } catch (const std::exception& error) {
    try {
      console.warning(fmt::format("there is no report of this run: {}", error.what()));
    } catch (...) {  // the console cannot be written either
    }
  }
}

}  // namespace ingot
