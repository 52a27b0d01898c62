// An Incident is an interruption of a supervised run. incidents.jsonl in the run's folder has one per line.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace ingot {

enum class IncidentKind {
  kKilled,   // a signal from outside ended a rank
  kCrashed,  // a fault of the program ended a rank (SIGSEGV, SIGABRT, ...)
  kError,    // a rank ended with an error of its own
  kHang,     // no sign of life within the time limit
  kStart,    // the job ended before any rank gave a sign of life
};

// The words of incidents.jsonl: "killed", "crashed", "error", "hang", "start".
const char* name(IncidentKind kind);

struct Incident {
  IncidentKind kind = IncidentKind::kError;
  int64_t time_s = 0;            // seconds since 1970 at which the supervisor saw it
  std::optional<int> rank = {};  // the rank at fault; nullopt if unknown
  std::string host = {};
  std::string operation = {};  // what the other ranks waited for; empty if unknown
  std::string reason = {};     // "signal 9 (SIGKILL)", the error of the rank that failed, ...
  int exit_code = 1;           // of the job
  int64_t step = 0;            // finished steps
  // The recovery. The optional fields are nullopt until a new step has been made.
  std::optional<int64_t> steps_lost = {};  // steps that were made a second time
  std::optional<double> recovery_s = {};   // from the incident to the next step's end
  std::optional<int> ranks = {};           // number of ranks that continued
  std::string end = {};                    // why the run was not started again; empty if it was
};

// "rank 1 on node7 was killed at step 120: signal 9 (SIGKILL)".
std::string describe(const Incident& incident);

// The incidents.jsonl of one run. REQUIRES: one process at a time writes it, the run's supervisor.
class IncidentLog {
 public:
  // run: the run's folder, which need not exist yet.
  explicit IncidentLog(const std::filesystem::path& run);

  const std::vector<Incident>& incidents() const { return incidents_; }
  // Adds an incident, or changes the last one, and replaces the file in one step. Throw a kDisk error if it
  // cannot be written; the incident is kept and written with the next one.
  void add(const Incident& incident);
  void change_last(const Incident& incident);

 private:
  void write() const;

  std::filesystem::path path_;
  std::vector<Incident> incidents_;
};

// Returns the incidents of a run, the oldest first; empty if there is no incidents.jsonl. Lines that are not
// an incident are left out.
std::vector<Incident> read_incidents(const std::filesystem::path& run);
// The same for the text of such a file.
std::vector<Incident> parse_incidents(const std::string& text);

}  // namespace ingot
