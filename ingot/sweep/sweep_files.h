// The files that a sweep writes into its folder: sweep.json, table.csv, table.md, KEY.svg for every varied key, and
// report.html.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "ingot/sweep/sweep_result.h"
#include "ingot/sweep/sweep_spec.h"

namespace ingot {

// What sweep.json says of the sweep besides its runs.
struct SweepRecord {
  SweepSpec spec;
  std::string base_hash;  // config_hash() of the configuration without the varied keys
  int threads = 0;        // of each run
  double halving_eta = 1;
  std::string command;  // that continues the sweep
};

// Writes all files, each in one step.
void write_sweep_files(const std::filesystem::path& out, const SweepRecord& record,
                       const std::vector<SweepRun>& runs, const std::vector<RunResult>& results);

// The table of settings and the conclusions, as Markdown.
std::string sweep_markdown(const SweepRecord& record, const std::vector<SweepRun>& runs,
                           const std::vector<RunResult>& results);

// Reads what an earlier call recorded; nullopt if the folder has no sweep.json. kData error if that is damaged.
std::optional<SweepRecord> read_sweep_record(const std::filesystem::path& out);

}  // namespace ingot
