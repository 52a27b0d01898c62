#include "ingot/sweep/sweep_result.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>

namespace ingot {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// The statuses of a setting's runs, from the one that is furthest behind.
constexpr std::array<const char*, 7> kFromBehind = {"pending",  "interrupted", "running",  "failed",
                                                    "diverged", "stopped",     "completed"};

size_t rank_of(const std::string& status) {
  return static_cast<size_t>(std::ranges::find(kFromBehind, status) - kFromBehind.begin());
}

std::vector<SettingResult> gather(const std::vector<SweepRun>& runs, const std::vector<RunResult>& results) {
  std::vector<SettingResult> settings;
  for (size_t i = 0; i < runs.size(); ++i) {
    const RunResult& result = results[i];
    if (runs[i].setting >= settings.size()) settings.resize(runs[i].setting + 1);
    SettingResult& setting = settings[runs[i].setting];
    if (setting.losses.empty()) {
      setting.values = runs[i].values;
      setting.is_complete = true;
      setting.status = "completed";
    }
    const bool has_loss = result.status == "completed" && result.val_loss;
    setting.losses.push_back(has_loss ? *result.val_loss : kInfinity);
    setting.is_complete &= result.is_over();
    if (rank_of(result.status) < rank_of(setting.status)) setting.status = result.status;
  }
  return settings;
}

// The settings whose other keys have the best setting's values, in the order of the key's values.
std::vector<size_t> slice(const SweepResult& result, size_t key) {
  const std::vector<std::string>& best = result.settings[*result.best].values;
  std::vector<size_t> slice;
  for (size_t s = 0; s < result.settings.size(); ++s) {
    bool is_in = result.settings[s].is_complete;
    for (size_t k = 0; k < best.size(); ++k) is_in &= k == key || result.settings[s].values[k] == best[k];
    if (is_in) slice.push_back(s);
  }
  return slice;
}

std::optional<KeyOptimum> optimum_of(const SweepSpec& spec, const SweepResult& result, size_t key) {
  const std::optional<std::vector<double>> numbers = spec.vary[key].numbers();
  const std::vector<size_t> places = slice(result, key);
  if (!numbers || places.size() < 3) return std::nullopt;
  KeyOptimum optimum{.key = spec.vary[key].key, .fit = {}, .is_log = spec.vary[key].spans_factors()};
  std::vector<double> x;
  for (const size_t place : places) {
    const auto& values = spec.vary[key].values;
    const auto at = std::ranges::find(values, result.settings[place].values[key]) - values.begin();
    const double number = (*numbers)[static_cast<size_t>(at)];
    x.push_back(optimum.is_log ? std::log(number) : number);
  }
  std::vector<std::vector<double>> y;
  for (size_t seed = 0; seed < result.settings[places[0]].losses.size(); ++seed) {
    y.emplace_back();
    for (const size_t place : places) y.back().push_back(result.settings[place].losses[seed]);
  }
  optimum.fit = fit_optimum(x, y);
  const auto back = [&](double v) { return optimum.is_log ? std::exp(v) : v; };
  optimum.value = back(optimum.fit.x);
  if (const auto& i = optimum.fit.interval) optimum.interval = Interval{back(i->low), back(i->high)};
  return optimum;
}

}  // namespace

bool SettingResult::has_loss() const {
  return is_complete && std::ranges::all_of(losses, [](double l) { return std::isfinite(l); });
}

SweepResult judge_sweep(const SweepSpec& spec, const std::vector<SweepRun>& runs,
                        const std::vector<RunResult>& results) {
  SweepResult result;
  result.settings = gather(runs, results);
  for (size_t s = 0; s < result.settings.size(); ++s) {
    SettingResult& setting = result.settings[s];
    if (!setting.has_loss()) continue;
    setting.loss = mean_interval(setting.losses);
    if (!result.best || setting.loss.mean < result.settings[*result.best].loss.mean) result.best = s;
  }
  if (!result.best) return result;
  for (size_t s = 0; s < result.settings.size(); ++s) {
    SettingResult& setting = result.settings[s];
    if (!setting.has_loss()) continue;
    setting.to_best = paired_difference(setting.losses, result.settings[*result.best].losses);
    if (s != *result.best && setting.to_best.interval && setting.to_best.interval->contains(0))
      result.not_told_apart.push_back(s);
  }
  for (size_t key = 0; key < spec.vary.size(); ++key)
    if (auto optimum = optimum_of(spec, result, key)) result.optima.push_back(*std::move(optimum));
  return result;
}

std::string optimum_text(const KeyOptimum& optimum) {
  const Optimum& fit = optimum.fit;
  if (fit.is_at_border)
    return fmt::format(
        "{:.4g} is the {} value that was tried: the optimum may lie beyond it, so widen the range",
        optimum.value, fit.best == 0 ? "lowest" : "highest");
  if (!fit.is_fitted)
    return fmt::format("{:.4g}; no parabola with a minimum fits its neighbours", optimum.value);
  if (!optimum.interval)
    return fmt::format("{:.4g}, by a parabola; an interval takes two seeds or more", optimum.value);
  return fmt::format("{:.4g}, between {:.4g} and {:.4g} (95 %)", optimum.value, optimum.interval->low,
                     optimum.interval->high);
}

}  // namespace ingot
