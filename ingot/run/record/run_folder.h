// The folder of a run: runs/<name>/{config.toml, run.json, heartbeat.json, train.log, metrics.jsonl,
// params.jsonl, tb/, loss.svg, report.html, samples/, checkpoints/}. One process writes to it at a time.
// Where several ranks train, it belongs to rank 0, and ranks/<rank> in it to each of the others: {run.json,
// train.log, metrics.jsonl, params.jsonl, heartbeat.json}.
#pragma once

#include <cstdint>
#include <ctime>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ingot/config/config.h"
#include "ingot/run/record/run_record.h"

namespace ingot {

// What run.json ends with.
struct RunSummary {
  std::string status;  // running, completed, interrupted, stopped, failed
  int64_t steps = 0;
  int64_t tokens = 0;  // trained on
  std::optional<double> val_loss;
  std::optional<double> val_bits_per_byte;
  std::optional<int64_t> eval_tokens = {};  // that this evaluation predicted
  double wall_s = 0, train_s = 0;
  uint64_t peak_rss_bytes = 0;
  int64_t non_finite_gradients = 0;  // that an 8-bit optimizer passed over, in this part of the run
  std::string config_hash;
  std::optional<double> product_peak_gflops = {};  // that MFU is a fraction of
  int exit_code = 0;                               // the process's, for a failed run
  std::string error = {};                          // that a failed run ended in
};

class RunFolder {
 public:
  // Makes the folder, or with is_resume opens one that holds a run. Locks it until the object or the process
  // ends. Without is_resume, what an earlier start left there before its first step is removed. kUsage error
  // if the folder is not empty then (not is_resume), holds no run (is_resume), or another process has the
  // lock; kDisk error if it cannot be written.
  RunFolder(const std::filesystem::path& folder, bool is_resume);
  // Makes a folder that nobody else has: `folder`, or if there is one already folder-2, folder-3 and so on.
  static std::unique_ptr<RunFolder> make_new(const std::filesystem::path& folder);
  // Of a rank above 0, in the run's folder, which rank 0 has opened. kUsage or kDisk error as above.
  static std::unique_ptr<RunFolder> of_rank(const std::filesystem::path& folder, int rank);
  ~RunFolder();
  RunFolder(const RunFolder&) = delete;
  RunFolder& operator=(const RunFolder&) = delete;

  // Removes what this start made, if no step was made in it; of a resumed run, and in the folder of a rank
  // above 0, does nothing. Never throws. Nothing else may be called afterwards.
  void remove_failed_start() noexcept;

  const std::filesystem::path& path() const { return folder_; }
  const std::filesystem::path& run() const { return run_; }  // rank 0's
  bool is_lead() const { return folder_ == run_; }           // rank 0's
  std::filesystem::path config() const { return folder_ / "config.toml"; }
  std::filesystem::path summary() const { return folder_ / "run.json"; }
  std::filesystem::path log() const { return folder_ / "train.log"; }
  std::filesystem::path metrics() const { return folder_ / "metrics.jsonl"; }
  std::filesystem::path params() const { return folder_ / "params.jsonl"; }
  std::filesystem::path tensorboard() const { return folder_ / "tb"; }
  std::filesystem::path loss_plot() const { return folder_ / "loss.svg"; }
  std::filesystem::path report() const { return folder_ / "report.html"; }
  std::filesystem::path samples() const { return folder_ / "samples"; }
  std::filesystem::path checkpoints() const { return run_ / "checkpoints"; }

  // config.toml: the resolved configuration with its documentation. Atomic.
  void write_config(const RunConfig& run) const;
  // run.json: where the run comes from, then the summary's fields. Atomic. NaN and absent values are null.
  void write_summary(const RunSummary& run) const { record_->write(run); }
  // What run.json says beside the summary; how the part before this one ended.
  RunRecord& record() const { return *record_; }

 private:
  RunFolder(std::filesystem::path folder, std::filesystem::path run);

  std::filesystem::path folder_, run_;
  std::vector<std::filesystem::path> made_;  // folders that this start made, the innermost first
  bool is_new_ = false;                      // rank 0's, and not resumed
  int lock_ = -1;                            // file descriptor
  std::unique_ptr<RunRecord> record_;
};

// "demo-20261121-031500" of a preset's or file's name and a time, in local time; "run-..." without a name.
std::string default_run_name(const std::string& name, std::time_t now);

}  // namespace ingot
