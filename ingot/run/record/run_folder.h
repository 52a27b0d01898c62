// RunFolder is the folder of a run: runs/<name>/{config.toml, run.json, heartbeat.json, train.log,
// metrics.jsonl, params.jsonl, tb/, loss.svg, report.html, samples/, checkpoints/}, and with dpo.beta
// reference.safetensors. Only one process at a time writes to it.
// With several ranks the folder belongs to rank 0, and each other rank writes to its subfolder
// ranks/<rank>: {run.json, train.log, metrics.jsonl, params.jsonl, heartbeat.json}.
#pragma once

#include <cstdint>
#include <ctime>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ingot/config/config.h"
#include "ingot/run/record/folder_lock.h"
#include "ingot/run/record/heartbeat.h"
#include "ingot/run/record/run_record.h"

namespace ingot {

// MixUse describes how much of one source of a mixture (data.mix) a run has used.
struct MixUse {
  std::string source;
  double share = 0;  // fraction of the windows
  int64_t train_tokens = 0;
  double epochs = 0;  // tokens trained on / train_tokens
  std::optional<double> val_loss = {};
};

// The fields at the end of run.json.
struct RunSummary {
  std::string status;  // running, completed, interrupted, stopped, failed
  int64_t steps = 0;
  int64_t tokens = 0;  // tokens trained on
  std::optional<double> val_loss;
  std::optional<double> val_bits_per_byte;
  std::optional<int64_t> eval_tokens = {};  // tokens predicted by this evaluation
  std::optional<int64_t> best_step = {};    // of checkpoints/best
  std::optional<double> best_val_loss = {};
  std::vector<MixUse> mix = {};  // empty without data.mix
  using Figures = std::vector<std::pair<std::string, double>>;
  Figures val_losses = {};                                  // by the names of data.val_sets
  std::vector<std::pair<std::string, Figures>> tasks = {};  // the figures of each task by their names
  double wall_s = 0, train_s = 0;
  uint64_t peak_rss_bytes = 0;
  int64_t non_finite_gradients = 0;  // skipped by an 8-bit optimizer since the last start or resume
  std::string config_hash;
  std::optional<double> product_peak_gflops = {};  // the denominator of MFU
  int ranks = 1;
  int exit_code = 0;       // the process's, if the run failed
  std::string error = {};  // the error that ended a failed run
};

class RunFolder {
 public:
  // Makes the folder or, with is_resume, opens one that holds a run. Locks it until this object or the
  // process ends. Without is_resume, removes what an earlier start left there before its first step. Throws
  // a kUsage error if the folder is not empty then (not is_resume), holds no run (is_resume), or is locked
  // by another process; a kDisk error if it cannot be written.
  RunFolder(const std::filesystem::path& folder, bool is_resume);
  // Makes a new folder: `folder` or, if that exists already, folder-2, folder-3 and so on.
  static std::unique_ptr<RunFolder> make_new(const std::filesystem::path& folder);
  // Opens the subfolder of a rank above 0 in the run's folder, which rank 0 has opened. Throws kUsage or
  // kDisk errors as above.
  static std::unique_ptr<RunFolder> of_rank(const std::filesystem::path& folder, int rank);
  ~RunFolder();
  RunFolder(const RunFolder&) = delete;
  RunFolder& operator=(const RunFolder&) = delete;

  // Removes what this start made if it made no step. Does nothing for a resumed run or in the folder of a
  // rank above 0. Never throws. No other function may be called afterwards.
  void remove_failed_start() noexcept;

  const std::filesystem::path& path() const { return folder_; }
  const std::filesystem::path& run() const { return run_; }  // the run's folder, which is rank 0's
  bool is_lead() const { return folder_ == run_; }           // true on rank 0
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

  // Writes config.toml, the resolved configuration with its documentation, atomically.
  void write_config(const RunConfig& run) const;
  // Writes run.json atomically: where the run comes from, then the summary's fields. NaN and missing values
  // are null.
  void write_summary(const RunSummary& run) const { record_->write(run); }
  // The other contents of run.json, and how the previous part of the run ended.
  RunRecord& record() const { return *record_; }
  Heartbeat& heartbeat() const { return *heartbeat_; }

 private:
  RunFolder(std::filesystem::path folder, std::filesystem::path run);

  std::filesystem::path folder_, run_;
  std::vector<std::filesystem::path> made_;  // folders that this start made, innermost first
  bool is_new_ = false;                      // on rank 0 of a run that is not resumed
  std::optional<FolderLock> lock_;
  std::unique_ptr<RunRecord> record_;
  std::unique_ptr<Heartbeat> heartbeat_;
};

// Returns "demo-20261121-031500" from the name of a preset or file and a time, in local time; "run-..."
// without a name.
std::string default_run_name(const std::string& name, std::time_t now);

}  // namespace ingot
