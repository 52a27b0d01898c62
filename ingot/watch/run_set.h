// RunSet is the runs that a page or a terminal shows. A run has an index that it keeps. Used by one thread.
#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "ingot/watch/run_view.h"

namespace ingot {

class RunSet {
 public:
  static constexpr size_t kMaxRuns = 1000;

  // given: folders of runs, and folders that hold runs, themselves or in a subfolder runs/ (a sweep's
  // folder). The name of a run is its folder as given or, if it was found in one, its last part: "sweep/a" if
  // several folders were given. Runs that appear there later are added by rescan(). A link that is found
  // there is not followed, because it may lead to a folder that was not given. Throws a kUsage error that
  // names a folder that does not exist or is a file.
  explicit RunSet(const std::vector<std::string>& given);

  void rescan();
  // Does rescan() and refresh_status() of every run unless that was done in the last `age_s` seconds.
  void refresh(double age_s);
  size_t size() const { return runs_.size(); }
  RunView& run(size_t index) { return *runs_[index]; }
  size_t left_out() const { return found_.size() - runs_.size(); }  // runs that were found beyond kMaxRuns

 private:
  void add(const std::filesystem::path& folder, std::string name);
  void add_children(const std::filesystem::path& collection, const std::filesystem::path& folder);

  std::vector<std::filesystem::path> collections_;  // folders that hold runs
  std::vector<std::unique_ptr<RunView>> runs_;
  std::set<std::filesystem::path> found_;  // every run, shown or not
  double refreshed_s_ = -1e9;              // of the steady clock
};

}  // namespace ingot
