#include "ingot/run/record/stale_files.h"

#include <algorithm>
#include <array>
#include <fstream>
#include <string>
#include <string_view>
#include <system_error>

#include "ingot/config/config_toml.h"
#include "ingot/core/error.h"
#include "ingot/core/file.h"
#include "ingot/formats/metrics_log.h"

namespace ingot {
namespace {

namespace fs = std::filesystem;

constexpr std::array<std::string_view, 11> kFiles = {".lock",
                                                     "config.toml",
                                                     "run.json",
                                                     "heartbeat.json",
                                                     "train.log",
                                                     "metrics.jsonl",
                                                     "params.jsonl",
                                                     "loss.svg",
                                                     "report.html",
                                                     "incidents.jsonl",
                                                     "reference.safetensors"};
constexpr std::array<std::string_view, 4> kFolders = {"tb", "samples", "checkpoints", "ranks"};

template <size_t N>
bool is_one_of(const std::array<std::string_view, N>& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// Returns true for one of Ingot's files, and for the temporary file that write_file() renames to it.
bool is_own_file(const std::string& name) { return is_one_of(kFiles, name.substr(0, name.find(".tmp."))); }

bool has_logged_step(const fs::path& log) {
  std::error_code error;
  if (fs::file_size(log, error) > 1 << 20 || error) return !error;
  for (const MetricsRow& row : read_metrics(log))
    if (row.number("step").value_or(0) > 0) return true;
  return false;
}

// Returns false for a configuration that a user wrote into the folder.
bool is_written_by_ingot(const fs::path& config) {
  const std::string text = read_file(config);
  ConfigBuilder builder;
  builder.add_toml(text, config.string());
  return config_toml(builder.config(), ConfigDocs::kComments) == text;
}

bool holds_only(const fs::path& folder, std::string_view prefix) {
  return std::all_of(
      fs::directory_iterator(folder), fs::directory_iterator(),
      [&](const fs::directory_entry& e) { return e.path().filename().string().starts_with(prefix); });
}

bool holds_only_stale_files(const fs::path& folder);

bool is_stale(const fs::directory_entry& entry) {
  const std::string name = entry.path().filename().string();
  if (entry.is_symlink()) return false;
  if (entry.is_regular_file()) {
    if (name == "metrics.jsonl" || name == "params.jsonl") return !has_logged_step(entry.path());
    return name == "config.toml" ? is_written_by_ingot(entry.path()) : is_own_file(name);
  }
  if (!entry.is_directory() || !is_one_of(kFolders, name)) return false;
  if (name == "tb") return holds_only(entry.path(), "events.out.tfevents.");
  if (name == "checkpoints") return holds_only(entry.path(), "tmp.");  // unfinished checkpoints
  if (name != "ranks") return fs::is_empty(entry.path());
  return std::all_of(
      fs::directory_iterator(entry.path()), fs::directory_iterator(), [](const fs::directory_entry& rank) {
        return rank.is_directory() && !rank.is_symlink() && holds_only_stale_files(rank.path());
      });
}

bool holds_only_stale_files(const fs::path& folder) {
  return std::all_of(fs::directory_iterator(folder), fs::directory_iterator(), is_stale);
}

}  // namespace

bool has_only_stale_files(const fs::path& run) {
  try {
    return fs::is_regular_file(fs::symlink_status(run / ".lock")) && holds_only_stale_files(run);
  } catch (const Error&) {
    return false;
  } catch (const fs::filesystem_error&) {
    return false;
  }
}

void remove_stale_files(const fs::path& run, LockFile lock) noexcept {
  try {
    if (!has_only_stale_files(run)) return;
    std::error_code error;
    for (const auto& entry : fs::directory_iterator(run))
      if (entry.path().filename() != ".lock") fs::remove_all(entry.path(), error);
    if (lock == LockFile::kGoes) fs::remove(run / ".lock", error);
  } catch (...) {
    return;  // the next start can remove what is left
  }
}

}  // namespace ingot
