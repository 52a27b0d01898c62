#include "ingot/sweep/result_json.h"

#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>

namespace ingot {
namespace {

using nlohmann::ordered_json;

ordered_json number_json(const std::optional<double>& value) {
  return value && std::isfinite(*value) ? ordered_json(*value) : ordered_json(nullptr);
}

ordered_json interval_json(const std::optional<Interval>& interval) {
  return interval ? ordered_json{interval->low, interval->high} : ordered_json(nullptr);
}

// A value of config.toml as JSON: a number, true or false, a list of texts, or a text.
ordered_json value_json(const std::string& value) {
  const ordered_json json = ordered_json::parse(value, nullptr, false);
  return json.is_number() || json.is_boolean() || json.is_array() ? json : ordered_json(value);
}

ordered_json set_json(const SweepSpec& spec, const std::vector<std::string>& values) {
  ordered_json set = ordered_json::object();
  for (size_t i = 0; i < spec.vary.size(); ++i) set[spec.vary[i].key] = value_json(values[i]);
  return set;
}

ordered_json best_json(const SweepSpec& spec, const SweepResult& result) {
  if (!result.best) return nullptr;
  const SettingResult& best = result.settings[*result.best];
  ordered_json others = ordered_json::array();
  for (const size_t setting : result.not_told_apart)
    others.push_back(set_json(spec, result.settings[setting].values));
  return {{"set", set_json(spec, best.values)},
          {"val_loss", best.loss.mean},
          {"interval", interval_json(best.loss.interval)},
          {"not_told_apart", others}};
}

}  // namespace

std::string sweep_json(const SweepRecord& record, const std::vector<SweepRun>& runs,
                       const std::vector<RunResult>& results) {
  const SweepSpec& spec = record.spec;
  const SweepResult result = judge_sweep(spec, runs, results);
  ordered_json json;
  json["source"] = spec.source;
  json["data"] = spec.data;
  json["overrides"] = spec.overrides;
  json["base_hash"] = record.base_hash;
  json["threads"] = record.threads;
  json["halving"] = record.halving_eta > 1 ? ordered_json(record.halving_eta) : ordered_json(nullptr);
  json["seeds"] = spec.seeds;
  json["command"] = record.command;
  json["vary"] = ordered_json::array();
  for (const Vary& vary : spec.vary)
    json["vary"].push_back({{"key", vary.key}, {"values", vary.values}, {"is_log", vary.is_log}});
  json["runs"] = ordered_json::array();
  for (size_t i = 0; i < runs.size(); ++i) {
    ordered_json run{{"set", set_json(spec, runs[i].values)}, {"seed", runs[i].seed},
                     {"status", results[i].status},           {"val_loss", number_json(results[i].val_loss)},
                     {"tokens", results[i].tokens},           {"steps", results[i].steps},
                     {"folder", "runs/" + runs[i].name}};
    if (!results[i].error.empty()) run["error"] = results[i].error;
    json["runs"].push_back(std::move(run));
  }
  json["best"] = best_json(spec, result);
  json["optima"] = ordered_json::array();
  for (const KeyOptimum& optimum : result.optima)
    json["optima"].push_back({{"key", optimum.key},
                              {"value", optimum.value},
                              {"interval", interval_json(optimum.interval)},
                              {"is_fitted", optimum.fit.is_fitted},
                              {"is_at_border", optimum.fit.is_at_border}});
  return json.dump(2, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

std::string lr_range_json(const LrRange& range, const LrRangeSpec& spec) {
  ordered_json json{{"from", spec.from}, {"to", spec.to}, {"steps", spec.steps}};
  json["knee"] = number_json(range.knee);
  json["rises_at"] = number_json(range.rises_at);
  json["interval"] = interval_json(range.interval);
  json["problem"] = range.problem.empty() ? ordered_json(nullptr) : ordered_json(range.problem);
  json["vary"] = range.interval ? ordered_json(lr_range_vary(range)) : ordered_json(nullptr);
  json["points"] = ordered_json::array();
  for (size_t i = 0; i < range.rates.size(); ++i)
    json["points"].push_back({{"lr", range.rates[i]},
                              {"loss", number_json(range.losses[i])},
                              {"smoothed", number_json(range.smoothed[i])}});
  return json.dump(2) + "\n";
}

std::string comparison_json(const Comparison& comparison) {
  ordered_json json;
  json["runs"] = ordered_json::array();
  for (size_t i = 0; i < comparison.runs.size(); ++i) {
    const ComparedRun& run = comparison.runs[i];
    json["runs"].push_back({{"run", run.name},
                            {"group", comparison.group_of(i)},
                            {"status", run.status},
                            {"seed", run.seed},
                            {"steps", run.steps},
                            {"tokens", run.tokens},
                            {"val_loss", number_json(run.val_loss)},
                            {"val_bits_per_byte", number_json(run.val_bits_per_byte)},
                            {"figures", run.figures},
                            {"tokens_per_s", number_json(run.tokens_per_s)},
                            {"peak_rss_bytes", number_json(run.peak_rss_bytes)}});
  }
  json["groups"] = ordered_json::array();
  for (const RunGroup& group : comparison.groups)
    json["groups"].push_back({{"name", group.name}, {"runs", group.runs}});
  json["settings"] = ordered_json::array();
  for (const SettingDifference& setting : comparison.settings)
    json["settings"].push_back({{"key", setting.key}, {"values", setting.values}});
  json["differences"] = ordered_json::array();
  for (const LossDifference& d : comparison.differences) {
    const auto& interval = d.value.interval;
    json["differences"].push_back(
        {{"group", d.group},
         {"quantity", d.quantity},
         {"mean", number_json(d.value.mean)},
         {"interval", interval_json(interval)},
         {"method", d.method},
         {"verdict", interval ? ordered_json(d.verdict()) : ordered_json(nullptr)}});
  }
  json["remarks"] = comparison.remarks;
  return json.dump(2, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace ingot
