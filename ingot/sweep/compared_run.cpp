#include "ingot/sweep/compared_run.h"

#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>

#include "ingot/config/config_toml.h"
#include "ingot/core/error.h"
#include "ingot/core/file.h"
#include "ingot/core/median.h"
#include "ingot/formats/metrics_log.h"
#include "ingot/run/record/run_status.h"

namespace ingot {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

std::optional<double> number_at(const json& object, const char* key) {
  if (!object.contains(key) || !object[key].is_number()) return std::nullopt;
  return object[key].get<double>();
}

std::string text_at(const json& object, const char* section, const char* key) {
  const json part =
      object.contains(section) && object[section].is_object() ? object[section] : json::object();
  return part.contains(key) && part[key].is_string() ? part[key].get<std::string>() : "";
}

// Reads the curves. A line of an evaluation has no tokens of its own; its step's line, the one before it,
// has.
void read_curves(const fs::path& metrics, ComparedRun& run) {
  std::vector<double> speeds;
  std::optional<double> step, tokens;
  visit_metrics_lines(metrics, [&](std::string_view line) {
    const std::optional<double> at = number_in_line(line, "step");
    if (!at) return;
    if (const auto taken = number_in_line(line, "tokens")) {
      step = at;
      tokens = taken;
      if (const auto loss = number_in_line(line, "loss")) {
        run.train.x.push_back(*taken);
        run.train.y.push_back(*loss);
      }
    }
    if (const auto speed = number_in_line(line, "tokens_per_s")) speeds.push_back(*speed);
    const std::optional<double> loss = number_in_line(line, "val_loss");
    if (!loss || step != at) return;
    run.validation.x.push_back(*tokens);
    run.validation.y.push_back(*loss);
  });
  if (!speeds.empty()) run.tokens_per_s = median_of(speeds);
}

// Reads the losses and accuracies that have names. Others of a task, such as its perplexity, are in run.json.
std::map<std::string, double> named_figures(const json& record) {
  std::map<std::string, double> figures;
  if (!record.is_object()) return figures;
  const json losses = record.value("val_losses", json::object()),
             tasks = record.value("tasks", json::object());
  for (const auto& [name, loss] : losses.items())
    if (loss.is_number()) figures[name + " val loss"] = loss;
  for (const auto& [name, task] : tasks.items())
    if (const auto acc = number_at(task, "acc")) figures[name + " acc"] = *acc;
  return figures;
}

}  // namespace

std::map<std::string, std::string> settings_of(const std::string& toml) {
  std::map<std::string, std::string> settings;
  std::istringstream lines(toml);
  std::string section;
  int groups = 0;
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("[[")) {
      section = fmt::format("{} {}", line.substr(2, line.find("]]") - 2), ++groups);
    } else if (line.starts_with("[")) {
      section = line.substr(1, line.find(']') - 1);
    } else if (const size_t equals = line.find(" = "); equals != line.npos && !section.empty()) {
      settings[section + "." + line.substr(0, equals)] = line.substr(equals + 3);
    }
  }
  return settings;
}

ComparedRun read_compared_run(const fs::path& folder) {
  const std::optional<RunStatus> status = read_run_status(folder);
  if (!status) fail(ErrorKind::kUsage, "{}: not a run's folder: it has no run.json", folder.string());
  ComparedRun run;
  run.name = folder.string();
  run.status = status->status;
  run.steps = status->steps;
  const json record = json::parse(read_file(folder / "run.json"), nullptr, false);
  run.val_loss = number_at(record, "val_loss");
  run.val_bits_per_byte = number_at(record, "val_bits_per_byte");
  run.figures = named_figures(record);
  run.peak_rss_bytes = number_at(record, "peak_rss_bytes");
  run.commit = text_at(record, "program", "commit");
  run.tokenizer_hash = text_at(record, "data", "tokenizer_hash");
  run.val_hash = text_at(record, "data", "val_hash");
  ConfigBuilder builder;
  builder.add_source((folder / "config.toml").string());
  const RunConfig& config = builder.build();
  run.seed = config.train.seed;
  run.settings = settings_of(config_toml(config, ConfigDocs::kNone));
  run.settings.erase("train.seed");
  read_curves(folder / "metrics.jsonl", run);
  if (!run.train.x.empty()) run.tokens = static_cast<int64_t>(run.train.x.back());
  return run;
}

std::vector<fs::path> run_folders(const std::vector<std::string>& given) {
  std::vector<fs::path> folders;
  for (const std::string& name : given) {
    const fs::path folder = name;
    std::vector<fs::path> inside;
    std::error_code error;
    if (!path_exists(folder / "run.json"))
      for (const auto& entry : fs::directory_iterator(folder / "runs", error))
        if (path_exists(entry.path() / "run.json")) inside.push_back(entry.path());
    std::ranges::sort(inside);
    if (inside.empty()) inside.push_back(folder);
    folders.insert(folders.end(), inside.begin(), inside.end());
  }
  return folders;
}

}  // namespace ingot
