// RunResult is the state of one run of a sweep, read from the run's folder. A sweep keeps no other state of
// its runs.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>

namespace ingot {

struct RunResult {
  // "pending" (not begun), "running", "completed", "stopped" (at the requested step), "interrupted" (it has
  // saved and can continue), "diverged" (its loss became non-finite), "failed".
  std::string status = "pending";
  int64_t steps = 0, tokens = 0;
  std::optional<double> val_loss;         // of the last evaluation, nats per token
  std::map<int64_t, double> evaluations;  // step -> validation loss
  std::string error;                      // of a failed run
  int exit_code = 0;                      // of its process

  bool is_over() const { return status == "completed" || status == "diverged" || status == "failed"; }
};

// Reads run.json and metrics.jsonl in the folder of a run. A run that was killed counts as interrupted.
RunResult read_run_result(const std::filesystem::path& folder);

// Returns true if the run can be resumed: the folder has a checkpoint.
bool can_resume(const std::filesystem::path& folder);

// Returns the last error, a line that begins with "ingot: ", of what a run wrote to stderr, without this
// label; the last line if there is no error; empty if there is no line.
std::string last_error(const std::filesystem::path& errors);

}  // namespace ingot
