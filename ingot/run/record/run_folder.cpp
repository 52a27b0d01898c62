#include "ingot/run/record/run_folder.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <ctime>
#include <system_error>

#include "ingot/checkpoint/checkpoint_store.h"
#include "ingot/config/config_toml.h"
#include "ingot/core/error.h"
#include "ingot/core/file.h"
#include "ingot/core/output.h"
#include "ingot/run/record/stale_files.h"

namespace ingot {
namespace {

// Removes temporary files that a killed run left before renaming them, here and in samples/.
void remove_dead_temporaries(const std::filesystem::path& folder) {
  constexpr std::array kNames = {"config.toml",  "run.json", "metrics.jsonl",
                                 "params.jsonl", "loss.svg", "report.html"};
  std::error_code ignored;
  for (const std::filesystem::path& dead : dead_temporaries(folder))
    if (std::ranges::find(kNames, dead.stem().stem().string()) != kNames.end())
      std::filesystem::remove(dead, ignored);
  for (const std::filesystem::path& dead : dead_temporaries(folder / "samples"))
    if (dead.filename().string().starts_with("step-")) std::filesystem::remove(dead, ignored);
}

bool holds_files(const std::filesystem::path& folder) {
  try {
    for (const auto& entry : std::filesystem::directory_iterator(folder))
      if (entry.path().filename() != FolderLock::kName) return true;
    return false;
  } catch (const std::filesystem::filesystem_error& error) {
    fail(ErrorKind::kDisk, "the run folder {} cannot be read: {}", folder.string(), error.code().message());
  }
}

// Returns advice for a folder that holds files. A run without a checkpoint cannot continue.
const char* advice_for(const std::filesystem::path& folder) {
  if (list_checkpoints(folder / "checkpoints").empty())
    return "is not empty, and holds no checkpoint to go on from: choose another --out";
  return "is not empty: go on with --resume, or choose another --out";
}

// Returns the folder and its parents that do not exist, innermost first.
std::vector<std::filesystem::path> missing_folders(std::filesystem::path folder) {
  std::vector<std::filesystem::path> missing;
  std::error_code error;
  for (; !folder.empty() && !std::filesystem::exists(folder, error); folder = folder.parent_path())
    missing.push_back(folder);
  return missing;
}

}  // namespace

RunFolder::RunFolder(const std::filesystem::path& folder, bool is_resume) : folder_(folder), run_(folder) {
  std::error_code error;
  if (is_resume && !std::filesystem::exists(config(), error))
    fail(ErrorKind::kUsage, "{} holds no run to resume (no config.toml); start one without --resume",
         folder.string());
  if (std::filesystem::exists(folder, error) && !std::filesystem::is_directory(folder, error))
    fail(ErrorKind::kUsage, "the run folder {} is a file; choose another --out", folder.string());
  made_ = missing_folders(folder);
  is_new_ = !is_resume;
  make_folders(folder);
  lock_.emplace(folder);
  remove_dead_temporaries(folder);
  if (!is_resume) remove_stale_files(folder, LockFile::kStays);
  if (!is_resume && holds_files(folder)) {
    lock_.reset();
    fail(ErrorKind::kUsage, "the run folder {} {}", folder.string(), advice_for(folder));
  }
  make_folders(samples());
  make_folders(checkpoints());
  record_ = std::make_unique<RunRecord>(folder_);
  heartbeat_ = std::make_unique<Heartbeat>(folder_);
}

std::unique_ptr<RunFolder> RunFolder::make_new(const std::filesystem::path& folder) {
  std::filesystem::path path = folder;
  std::vector<std::filesystem::path> made = missing_folders(path);
  make_folders(path.parent_path());
  std::error_code error;
  // If two processes start in the same second, one makes the folder and the other tries the next name.
  for (int n = 2; !std::filesystem::create_directory(path, error) && !error; ++n) {
    path = fmt::format("{}-{}", folder.string(), n);
    made = {path};
  }
  if (error) fail(ErrorKind::kDisk, "cannot make the run folder {}: {}", path.string(), error.message());
  auto run = std::make_unique<RunFolder>(path, false);
  run->made_ = std::move(made);
  return run;
}

void RunFolder::remove_failed_start() noexcept {
  if (!is_new_) return;
  remove_stale_files(folder_, LockFile::kGoes);
  std::error_code error;
  for (const std::filesystem::path& folder : made_)
    if (!std::filesystem::remove(folder, error)) return;
}

RunFolder::RunFolder(std::filesystem::path folder, std::filesystem::path run)
    : folder_(std::move(folder)), run_(std::move(run)) {
  make_folders(folder_);
  lock_.emplace(folder_);
  remove_dead_temporaries(folder_);
  record_ = std::make_unique<RunRecord>(folder_);
  heartbeat_ = std::make_unique<Heartbeat>(folder_);
}

std::unique_ptr<RunFolder> RunFolder::of_rank(const std::filesystem::path& folder, int rank) {
  return std::unique_ptr<RunFolder>(new RunFolder(folder / "ranks" / std::to_string(rank), folder));
}

RunFolder::~RunFolder() = default;

void RunFolder::write_config(const RunConfig& run) const {
  write_file(config(), config_toml(run, ConfigDocs::kComments));
}

std::string default_run_name(const std::string& name, std::time_t now) {
  const std::string stem = std::filesystem::path(name).stem().string();
  std::tm local{};
  localtime_r(&now, &local);
  char time[32];
  std::strftime(time, sizeof time, "%Y%m%d-%H%M%S", &local);
  return fmt::format("{}-{}", stem.empty() ? "run" : stem, time);
}

}  // namespace ingot
