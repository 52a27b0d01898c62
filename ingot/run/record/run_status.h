// The status of a run, read from its folder by another command: running, ended, or died without writing how
// it ended.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

namespace ingot {

struct RunStatus {
  // "running", "died" (its process is gone and did not write how it ended), "running or died" (its process
  // is on another machine), or the status in run.json: "completed", "interrupted", "stopped", "failed".
  std::string status;
  int64_t steps = 0;                 // finished steps, as far as the folder shows
  std::optional<double> loss;        // loss of the last finished step
  std::optional<int64_t> best_step;  // step of checkpoints/best
  std::optional<double> best_val_loss;
  std::string host;
  int64_t pid = 0;
  std::optional<int64_t> last_sign_s;  // seconds since 1970: its end, or its last heartbeat
  std::optional<int64_t> exit_code;
  std::string error;  // error of a failed run, or of the rank that failed
};

// Returns nullopt if the folder holds no run.json. Throws a kData error if the file is not a JSON object with
// a status. The texts of the result contain no control characters.
std::optional<RunStatus> read_run_status(const std::filesystem::path& folder);

// "3h05m ago", from the last sign of the process.
std::string last_sign_text(const RunStatus& status, int64_t now_s);
// Returns a remark that explains the status: "pid 4711 is gone", "on node7", "exit code 5: ...".
std::string remark_on(const RunStatus& status);
// "died at step 120 (pid 4711 is gone), last heartbeat 3h05m ago"; "running or died at step 120: last
// heartbeat 3h05m ago on node7".
std::string describe(const RunStatus& status, int64_t now_s);

// The same as a sentence about a model, given its run's folder or the checkpoints/ in it. Empty for a
// completed run, and for a folder that belongs to no run or cannot be read.
std::string note_of_run(const std::filesystem::path& model);

}  // namespace ingot
