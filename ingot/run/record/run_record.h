// run.json and heartbeat.json: what a run is, where it comes from and how it stands, so that any later
// command can tell, even where the process was killed.
//
// run.json: program (version, commit, is_modified, arguments), libraries, threads, machine, process (host,
// boot_id, pid_namespace, pid, start_ticks), data (train_hash, train_tokens, val_hash, val_tokens,
// tokenizer_hash), begin and end (of the whole run), the summary's fields, exit_code (which mpirun does not
// pass on) and error, and parts: one entry for the start and one for every --resume, each with begin, end,
// status, exit_code, steps, host, pid, commit and arguments.
// heartbeat.json: the time and the number of the last finished step, at most ten seconds old while steps are
// shorter; it is rewritten in place, without fsync.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ingot/run/record/process_identity.h"

namespace ingot {

struct RunSummary;  // run/record/run_folder.h
struct RunStatus;   // run/record/run_status.h

// The program that trains.
struct RunOrigin {
  std::string version = "unknown", commit = "unknown";
  std::optional<bool> is_modified = {};     // the files it was built from; nullopt: not known
  std::vector<std::string> arguments = {};  // as they were typed, the program first
  // Name and version of the libraries that this process uses; asked whenever run.json is written, since some
  // are loaded at first use.
  std::function<std::vector<std::pair<std::string, std::string>>()> libraries = {};
};

// What is trained on: hashes as TokenSource::content_hash, and of the tokenizer's tokenizer.json.
struct RunInputs {
  uint64_t train_hash = 0, val_hash = 0, tokenizer_hash = 0;
  int64_t train_tokens = 0, val_tokens = 0;
};

class RunRecord {
 public:
  // Reads what the folder's run.json, if there is one, says of the earlier parts; what cannot be read there
  // is left out. REQUIRES: the caller holds the folder's lock.
  explicit RunRecord(const std::filesystem::path& folder);
  ~RunRecord();
  RunRecord(const RunRecord&) = delete;
  RunRecord& operator=(const RunRecord&) = delete;

  RunOrigin origin = {};
  std::optional<RunInputs> inputs = {};

  // "the run died at step 120 (pid 4711 is gone)"; empty if the part before ended by itself, or there is
  // none.
  const std::string& death_before() const { return death_before_; }

  // run.json, atomically. kDisk error if it cannot be written.
  void write(const RunSummary& run) const;

  // A step is finished: renews heartbeat.json if ten seconds have passed. Whatever goes wrong is left alone.
  void beat(int64_t step) noexcept;

 private:
  void read_parts();

  std::filesystem::path folder_;
  ProcessIdentity process_ = this_process();
  int64_t begin_s_;
  std::string parts_before_ = "[]";  // JSON
  std::string first_begin_;          // when the whole run began; empty: this part is the first
  std::string death_before_;
  std::chrono::steady_clock::time_point next_beat_ = {};
  int heartbeat_ = -1;  // file descriptor
};

}  // namespace ingot
