// Writes and reads the files of a sweep's folder: sweep.json, table.csv, table.md, KEY.svg for every varied
// key, and report.html.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "ingot/sweep/sweep_result.h"
#include "ingot/sweep/sweep_spec.h"

namespace ingot {

// SweepRecord holds what sweep.json records of the sweep in addition to its runs.
struct SweepRecord {
  SweepSpec spec;
  std::string base_hash;  // config_hash() of the configuration without the varied keys
  int threads = 0;        // of each run
  double halving_eta = 1;
  std::string command;  // continues the sweep
};

// Writes all files, each atomically.
void write_sweep_files(const std::filesystem::path& out, const SweepRecord& record,
                       const std::vector<SweepRun>& runs, const std::vector<RunResult>& results);

// Returns the table of settings and the conclusions, as Markdown.
std::string sweep_markdown(const SweepRecord& record, const std::vector<SweepRun>& runs,
                           const std::vector<RunResult>& results);

// Reads the record of an earlier call; nullopt if the folder has no sweep.json. Throws a kData error if the
// file is damaged.
std::optional<SweepRecord> read_sweep_record(const std::filesystem::path& out);

}  // namespace ingot
