#include "ingot/sweep/lr_range.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "ingot/core/error.h"
#include "ingot/formats/metrics_log.h"

namespace ingot {
namespace {

constexpr int64_t kFewestSteps = 20, kMaxSteps = 1'000'000;

// Returns the losses, limited to twice the first one. A higher loss only shows that training has failed, and
// would dominate its neighbours.
std::vector<double> capped(const std::vector<double>& losses) {
  std::vector<double> capped = losses;
  for (double& loss : capped)
    if (std::isfinite(loss)) loss = std::min(loss, 2 * losses[0]);
  return capped;
}

// The standard deviation of the losses around the smoothed ones, up to index `end`.
double noise_of(const std::vector<double>& losses, const std::vector<double>& smoothed, size_t end) {
  double sum = 0;
  for (size_t i = 0; i < end; ++i) sum += (losses[i] - smoothed[i]) * (losses[i] - smoothed[i]);
  return std::sqrt(sum / static_cast<double>(std::max<size_t>(end, 1)));
}

std::string number_text(double value) { return fmt::format("{:.3g}", value); }

}  // namespace

void LrRangeSpec::validate() const {
  if (!(std::isfinite(from) && from > 0))
    fail(ErrorKind::kUsage, "--from must be a rate above 0, got {}", from);
  if (!(std::isfinite(to) && to >= 10 * from))
    fail(ErrorKind::kUsage, "--to must be at least ten times --from = {}, got {}", from, to);
  if (steps < kFewestSteps || steps > kMaxSteps)
    fail(ErrorKind::kUsage, "--steps must lie in {} .. {}, got {}", kFewestSteps, kMaxSteps, steps);
}

double LrRangeSpec::rate(int64_t step) const {
  return from * std::pow(to / from, static_cast<double>(step - 1) / static_cast<double>(steps));
}

RunConfig lr_range_config(RunConfig config, const LrRangeSpec& spec) {
  spec.validate();
  if (config.parallel.ranks() > 1)
    fail(ErrorKind::kUsage, "the range test has one rank, not the {} of {}; leave parallel out",
         config.parallel.ranks(), config.parallel.to_string());
  double& base = config.optimizer.lr;
  if (!(base > 0))
    fail(ErrorKind::kUsage,
         "optimizer.lr must be above 0, got {}: groups keep the ratio of their rates to it", base);
  for (GroupConfig& group : config.optimizer.groups)
    if (group.lr) *group.lr *= spec.to / base;
  base = spec.to;
  config.schedule = ScheduleConfig{};
  config.schedule.kind = ScheduleKind::kPhases;
  config.schedule.phases_from = spec.from / spec.to;
  config.schedule.phases = {
      {.kind = Phase::Length::kRest, .length = 0, .curve = Curve::kExponential, .to = 1}};
  config.train.steps = spec.steps;
  config.train.stop_at = 0;
  config.train.max_time_s = 0;
  config.train.max_tokens = 0;
  config.train.epochs = 0;
  config.train.stats_every = 0;
  config.guard.non_finite = GuardPolicy::kStop;
  config.guard.spike = GuardPolicy::kReport;
  config.eval.every = 0;
  config.eval.max_tokens = config.model.context;
  config.checkpoint = {.every = 0, .every_minutes = 0, .keep = 1, .keeps_best = false};
  config.sample.every = 0;
  config.sample.count = 0;
  return config;
}

LrRange judge_lr_range(std::vector<double> rates, std::vector<double> losses) {
  INGOT_CHECK(rates.size() == losses.size(), "judge_lr_range: {} rates and {} losses", rates.size(),
              losses.size());
  LrRange range;
  range.rates = std::move(rates);
  range.losses = std::move(losses);
  const auto first_bad = std::ranges::find_if(range.losses, [](double l) { return !std::isfinite(l); });
  const auto end = static_cast<size_t>(first_bad - range.losses.begin());
  if (end < 3) {
    range.smoothed = range.losses;
    range.problem = "the loss was not finite from the first steps on; lower --from";
    return range;
  }
  std::vector<double> finite = capped({range.losses.begin(), first_bad});
  range.smoothed = smoothed(finite, smoothing_width(range.losses.size()));
  const std::vector<double>& y = range.smoothed;
  constexpr double kRise = 0.03, kNoisyRise = 2, kNoisyFall = 4;
  const double noise = noise_of(finite, y, end / 2);  // where the rates are too low to disturb the loss
  bool has_fallen = false;
  for (size_t i = 0; i < end && !range.rises_at; ++i) {
    if (y[i] < y[range.lowest]) range.lowest = i;
    const double fall = y[0] - y[range.lowest];
    has_fallen |= fall > kNoisyFall * noise;
    if (has_fallen && y[i] > y[range.lowest] + std::max(kRise * fall, kNoisyRise * noise))
      range.rises_at = range.rates[i];
  }
  if (!range.rises_at && end < range.rates.size()) range.rises_at = range.rates[end];
  if (!has_fallen) {
    range.problem = "the loss did not fall by more than its noise; give more --steps, or lower --from";
  } else if (!range.rises_at) {
    range.problem = fmt::format("the loss is lowest at {} and did not rise after it; raise --to",
                                number_text(range.rates[range.lowest]));
  } else {
    constexpr double kReached = 0.9, kFactor = 4;
    size_t knee = 0;
    while (y[knee] > y[0] - kReached * (y[0] - y[range.lowest])) ++knee;
    range.knee = range.rates[knee];
    range.interval = Interval{*range.knee / kFactor, *range.knee * kFactor};
  }
  range.smoothed.resize(range.losses.size(), std::nan(""));
  return range;
}

LrRange read_lr_range(const std::filesystem::path& run, const LrRangeSpec& spec) {
  std::vector<double> by_step(static_cast<size_t>(spec.steps) + 1, std::nan(""));
  const MetricsCurve curve = read_metrics_curve(run / "metrics.jsonl", "step", "loss");
  for (size_t i = 0; i < curve.x.size(); ++i)
    if (const auto step = static_cast<size_t>(curve.x[i]); step < by_step.size()) by_step[step] = curve.y[i];
  std::vector<double> rates, losses;
  for (int64_t step = 1; step < spec.steps; ++step) {
    rates.push_back(spec.rate(step));
    losses.push_back(by_step[static_cast<size_t>(step) + 1]);
  }
  return judge_lr_range(std::move(rates), std::move(losses));
}

LinePlot lr_range_plot(const LrRange& range) {
  LinePlot plot{
      .title = "Loss while the learning rate grows", .x_label = "optimizer.lr", .y_label = "nats per token"};
  // Losses beyond twice the first one would flatten the rest of the curve.
  plot.series.push_back(
      {.name = "loss", .x = range.rates, .y = capped(range.losses), .style = PlotStyle::kFaint});
  plot.series.push_back({.name = "smoothed", .x = range.rates, .y = range.smoothed});
  plot.is_log_x = true;
  return plot;
}

std::string lr_range_vary(const LrRange& range) {
  return fmt::format("--vary optimizer.lr={}..{}:log:5", number_text(range.interval->low),
                     number_text(range.interval->high));
}

}  // namespace ingot
