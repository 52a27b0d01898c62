// RunRecord writes run.json: what a run is, where it comes from and how far it is, so that any later command
// can tell, even if the process was killed.
//
// run.json: program (version, commit, is_modified, arguments), libraries, threads, machine, process (host,
// boot_id, pid_namespace, pid, start_ticks), data (train_hash, train_tokens, val_hash, val_tokens,
// tokenizer_hash), init_from (the folder whose weights the run started from; null: random weights), begin and
// end (of the whole run), the summary's fields, exit_code (which mpirun does not pass on) and error, and
// parts: one entry for the start and one for every --resume, each with begin, end, status, exit_code, steps,
// host, pid, commit and arguments.
#pragma once

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
  std::optional<bool> is_modified = {};     // files differed from the commit; nullopt if unknown
  std::vector<std::string> arguments = {};  // as typed, starting with the program
  // Returns name and version of the libraries that this process uses. Called whenever run.json is written,
  // because some libraries are loaded at first use.
  std::function<std::vector<std::pair<std::string, std::string>>()> libraries = {};
};

// The training data: hashes of the tokens (TokenSource::content_hash) and of the tokenizer's
// tokenizer.json.
struct RunInputs {
  uint64_t train_hash = 0, val_hash = 0, tokenizer_hash = 0;
  int64_t train_tokens = 0, val_tokens = 0;
};

// The folder whose weights a run started from (train.init_from).
struct RunStart {
  std::string folder, model_type;
  uint64_t config_hash = 0;       // XXH3-64 of its config.json (config.toml of a checkpoint of Ingot)
  size_t tensors = 0, files = 0;  // of the weights
};

class RunRecord {
 public:
  // Reads the earlier parts from the folder's run.json if there is one, and skips what it cannot read.
  // REQUIRES: the caller holds the folder's lock.
  explicit RunRecord(const std::filesystem::path& folder);
  RunRecord(const RunRecord&) = delete;
  RunRecord& operator=(const RunRecord&) = delete;

  RunOrigin origin = {};
  std::optional<RunInputs> inputs = {};
  std::optional<RunStart> start = {};

  // "the run died at step 120 (pid 4711 is gone)"; empty if the previous part ended by itself or there is
  // none.
  const std::string& death_before() const { return death_before_; }

  // Returns the peak of products (GFLOP/s of all ranks) that the run's MFU is a fraction of since it ran
  // before, or 0 if there is none, or it ran on another machine, on other threads or with other ranks.
  double peak_before(int ranks) const;

  // Writes run.json atomically. Throws a kDisk error if it cannot be written.
  void write(const RunSummary& run) const;

 private:
  void read_parts();

  std::filesystem::path folder_;
  ProcessIdentity process_ = this_process();
  int64_t begin_s_;
  std::string parts_before_ = "[]";    // JSON
  std::string start_before_ = "null";  // JSON; of the part that began the run
  std::string first_begin_;            // when the whole run began; empty if this part is the first
  std::string death_before_;
  struct {
    double gflops = 0;
    std::string identity;
  } peak_before_;
};

}  // namespace ingot
