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
