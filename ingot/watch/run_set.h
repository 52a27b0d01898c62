// RunSet is the runs that a page or a terminal shows. A run has an index that it keeps.
#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "ingot/watch/run_view.h"

namespace ingot {

class RunSet {
 public:
  static constexpr size_t kMostRuns = 1000;

  // given: folders of runs, and folders that hold runs, themselves or in a subfolder runs/ (a sweep's folder).
  // The name of a run is its folder as given or, if it was found in one, its last part: "sweep/a" if
  // several folders were given. Runs that appear there later are added by rescan(). Throws a kUsage error that names a folder that does
  // not exist or is a file.
  explicit RunSet(const std::vector<std::string>& given);

  // Held by a thread while it uses the other members, because several connections share the runs.
  std::unique_lock<std::mutex> lock() { return std::unique_lock(mutex_); }

  void rescan();
  // Does rescan() and refresh_status() of every run unless that was done in the last `age_s` seconds.
  void refresh(double age_s);
  size_t size() const { return runs_.size(); }
  RunView& run(size_t index) { return *runs_[index]; }

 private:
  void add(const std::filesystem::path& folder, std::string name);
  void add_children(const std::filesystem::path& collection, const std::filesystem::path& folder);

  std::mutex mutex_;
  std::vector<std::filesystem::path> collections_;  // folders that hold runs
  std::vector<std::unique_ptr<RunView>> runs_;
  double refreshed_s_ = -1e9;  // of the steady clock
};

}  // namespace ingot
