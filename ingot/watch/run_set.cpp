#include "ingot/watch/run_set.h"

#include <algorithm>
#include <chrono>
#include <system_error>

#include "ingot/core/error.h"

namespace ingot {
namespace {

namespace fs = std::filesystem;

double steady_s() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

bool holds_run(const fs::path& folder) {
  std::error_code error;
  return fs::is_regular_file(folder / "run.json", error);
}

bool is_link(const fs::path& path) {
  std::error_code error;
  return fs::is_symlink(path, error);
}

}  // namespace

RunSet::RunSet(const std::vector<std::string>& given) {
  for (const std::string& text : given) {
    std::error_code error;
    const fs::path folder = text;
    if (!fs::is_directory(folder, error))
      fail(ErrorKind::kUsage, "{} is no folder; name a run's folder, or one that holds runs", text);
    if (holds_run(folder))
      add(folder, folder.lexically_normal().string());
    else
      collections_.push_back(folder);
  }
  if (given.empty()) collections_.emplace_back("runs");
  rescan();
}

void RunSet::add(const fs::path& folder, std::string name) {
  if (!found_.insert(folder).second || runs_.size() >= kMaxRuns) return;
  runs_.push_back(std::make_unique<RunView>(folder, std::move(name)));
}

void RunSet::add_children(const fs::path& collection, const fs::path& folder) {
  std::error_code error;
  std::vector<fs::path> found;
  for (const auto& entry : fs::directory_iterator(folder, error))
    if (!is_link(entry.path()) && holds_run(entry.path())) found.push_back(entry.path());
  std::ranges::sort(found);
  // A trailing slash and the sweep's subfolder runs/ are left out of the name.
  fs::path prefix = collections_.size() > 1 ? collection.lexically_normal() : fs::path();
  if (prefix.filename().empty()) prefix = prefix.parent_path();
  for (const fs::path& run : found) add(run, (prefix.filename() / run.filename()).string());
}

void RunSet::rescan() {
  for (const fs::path& folder : collections_) {
    add_children(folder, folder);
    if (!is_link(folder / "runs")) add_children(folder, folder / "runs");
  }
}

void RunSet::refresh(double age_s) {
  const double now_s = steady_s();
  if (now_s - refreshed_s_ < age_s) return;
  rescan();
  for (const auto& run : runs_) run->refresh_status();
  refreshed_s_ = steady_s();
}

}  // namespace ingot
