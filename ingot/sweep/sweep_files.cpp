#include "ingot/sweep/sweep_files.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "ingot/core/error.h"
#include "ingot/core/file.h"
#include "ingot/sweep/result_json.h"
#include "ingot/sweep/sweep_report.h"

namespace ingot {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

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

std::string csv_cell(const std::string& text) {
  if (text.find_first_of(",\"\n") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) quoted += c == '"' ? std::string("\"\"") : std::string(1, c);
  return quoted + "\"";
}

std::string table_csv(const SweepSpec& spec, const std::vector<SweepRun>& runs,
                      const std::vector<RunResult>& results) {
  std::string csv;
  for (const Vary& vary : spec.vary) csv += vary.key + ",";
  csv += "seed,status,steps,tokens,val_loss\n";
  for (size_t i = 0; i < runs.size(); ++i) {
    for (const std::string& value : runs[i].values) csv += csv_cell(value) + ",";
    const RunResult& result = results[i];
    csv += fmt::format("{},{},{},{},{}\n", runs[i].seed, result.status, result.steps, result.tokens,
                       result.val_loss ? fmt::format("{}", *result.val_loss) : "");
  }
  return csv;
}

// Writes the file only if its text differs, so that a sweep with nothing to do leaves the folder as it is.
void write_if_changed(const fs::path& path, const std::string& text) {
  std::error_code error;
  if (fs::is_regular_file(path, error) && read_file(path) == text) return;
  write_file(path, text);
}

std::vector<std::string> texts(const ordered_json& list) { return list.get<std::vector<std::string>>(); }

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

void write_sweep_files(const fs::path& out, const SweepRecord& record, const std::vector<SweepRun>& runs,
                       const std::vector<RunResult>& results) {
  write_if_changed(out / "sweep.json", sweep_json(record, runs, results));
  write_if_changed(out / "table.csv", table_csv(record.spec, runs, results));
  write_if_changed(out / "table.md", sweep_markdown(record, runs, results));
  const SweepResult result = judge_sweep(record.spec, runs, results);
  const std::vector<LinePlot> plots = sweep_plots(record.spec, result);
  for (size_t i = 0; i < plots.size(); ++i)
    write_if_changed(out / (record.spec.vary[i].key + ".svg"), render_svg(plots[i]));
  write_if_changed(out / "report.html", sweep_report(record, runs, results));
}

std::optional<SweepRecord> read_sweep_record(const fs::path& out) {
  const fs::path path = out / "sweep.json";
  if (!path_exists(path)) return std::nullopt;
  try {
    const ordered_json json = ordered_json::parse(read_file(path));
    SweepRecord record;
    record.spec.source = json.at("source");
    record.spec.data = texts(json.at("data"));
    record.spec.overrides = texts(json.at("overrides"));
    record.spec.seeds = json.at("seeds");
    record.base_hash = json.at("base_hash");
    record.threads = json.at("threads");
    record.halving_eta = json.at("halving").is_null() ? 1 : json.at("halving").get<double>();
    record.command = json.at("command");
    for (const ordered_json& vary : json.at("vary"))
      record.spec.vary.push_back(
          {.key = vary.at("key"), .values = texts(vary.at("values")), .is_log = vary.at("is_log")});
    return record;
  } catch (const nlohmann::json::exception& error) {
    fail(ErrorKind::kData,
         "{}: this is not the record of a sweep ({}); remove it, and a new one is made from the runs beside "
         "it",
         path.string(), error.what());
  }
}

}  // namespace ingot
