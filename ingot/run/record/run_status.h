// How a run stands, read from its folder by another command: running, ended, or died without a word.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

namespace ingot {

struct RunStatus {
  // "running", "died" (its process is gone, and it did not say how it ended), "running or died" (its process
  // is on another machine), or as run.json has it: "completed", "interrupted", "stopped", "failed".
  std::string status;
  int64_t steps = 0;           // finished, as far as the folder knows
  std::optional<double> loss;  // in the last of them
  std::string host;
  int64_t pid = 0;
  std::optional<int64_t> last_sign_s;  // seconds since 1970: its end, or its last heartbeat
  std::optional<int64_t> exit_code;
  std::string error;  // what a failed run, or the rank that failed, said
};

// The text with a question mark for each control character: another program may have written it, and a
// terminal would obey.
std::string without_controls(std::string text);

// nullopt if the folder holds no run.json. kData error if that is no JSON object with a status. Texts are
// without controls.
std::optional<RunStatus> read_run_status(const std::filesystem::path& folder);

// "3h05m ago": its last sign of life.
std::string last_sign_text(const RunStatus& status, int64_t now_s);
// What there is to say beside the status: "pid 4711 is gone", "on node7", "exit code 5: ...".
std::string remark_on(const RunStatus& status);
// "died at step 120 (pid 4711 is gone), last heartbeat 3h05m ago"; "running or died at step 120: last
// heartbeat 3h05m ago on node7".
std::string describe(const RunStatus& status, int64_t now_s);

// The same as a sentence about a model that comes from a run's folder, or its checkpoints/; empty for a
// completed run, and for a folder that is of no run or cannot be read.
std::string note_of_run(const std::filesystem::path& model);

}  // namespace ingot
