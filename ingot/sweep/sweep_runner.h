// SweepRunner trains the runs of a sweep, each in a process of its own, and several at a time.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ingot/console/console.h"
#include "ingot/core/process/child_program.h"
#include "ingot/sweep/halving.h"
#include "ingot/sweep/run_result.h"
#include "ingot/sweep/sweep_jobs.h"
#include "ingot/sweep/sweep_spec.h"

namespace ingot {

struct SweepOptions {
  std::filesystem::path program;  // ingot
  std::string launcher;           // starts the ranks of a run with several: "mpirun"
  std::filesystem::path out;      // the runs are in out/runs, what they wrote to stderr in out/logs
  SweepJobs jobs;
  double halving_eta = 1;  // 1: no run stops early
  double budget_s = 0;     // 0: none
};

class SweepRunner {
 public:
  enum class End { kComplete, kInterrupted, kOutOfBudget };

  // Reads the results of earlier calls. Runs that failed are tried again. The references must outlive this
  // object. Once `is_interrupted` is set, no run begins, and those that train are asked to save and end.
  SweepRunner(const SweepSpec& spec, const std::vector<SweepRun>& runs, const SweepOptions& options,
              Console& console, const std::atomic<bool>& is_interrupted);

  // Trains until every run has ended, is stopped by halving, or failed; until the budget is used up; or until
  // it is interrupted. Calls on_change whenever a run has ended.
  End run(const std::function<void()>& on_change);

  const std::vector<RunResult>& results() const { return results_; }  // parallel to the runs
  std::filesystem::path folder(size_t run) const { return options_.out / "runs" / runs_[run].name; }

 private:
  using Clock = std::chrono::steady_clock;
  struct Child {
    std::unique_ptr<ChildProgram> program;
    int64_t target = 0;  // the step to which it trains
    size_t place = 0;    // its index in SweepJobs::places
    Clock::time_point begin;
  };

  std::optional<double> loss_at(size_t run, int64_t steps) const;
  HalvingTargets targets() const;
  size_t free_place() const;
  void start(size_t run, int64_t target);
  bool start_what_can();
  void look_at_others();
  bool reap();
  void judge_end(size_t run, const Child& child, int exit_code);
  void show_progress();
  void report(size_t run, const Child& child);
  std::filesystem::path errors(size_t run) const {
    return options_.out / "logs" / (runs_[run].name + ".txt");
  }

  const SweepSpec& spec_;
  const std::vector<SweepRun>& runs_;
  const SweepOptions options_;
  Console& console_;
  const std::atomic<bool>& is_interrupted_;
  std::vector<HalvingRun> lengths_;
  std::vector<RunResult> results_;
  std::map<size_t, Child> children_;
  Clock::time_point begin_ = Clock::now(), next_look_ = begin_;
  double steps_at_begin_ = 0;
  bool is_ending_ = false;  // no run begins any more
};

}  // namespace ingot
