// The folder of a run: runs/<name>/{config.toml, run.json, train.log, metrics.jsonl, params.jsonl, tb/,
// loss.svg, report.html, samples/, checkpoints/}. One process writes to it at a time. Where several ranks
// train, it belongs to rank 0, and ranks/<rank> in it to each of the others: {run.json, train.log,
// metrics.jsonl, params.jsonl}.
#pragma once

#include <cstdint>
#include <ctime>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "ingot/train/config.h"

namespace ingot {

// What run.json ends with.
struct RunSummary {
  std::string status;  // running, completed, interrupted, stopped, failed
  int64_t steps = 0;
  int64_t tokens = 0;  // trained on
  std::optional<double> val_loss;
  std::optional<double> val_bits_per_byte;
  double wall_s = 0, train_s = 0;
  uint64_t peak_rss_bytes = 0;
  int64_t non_finite_gradients = 0;  // that an 8-bit optimizer passed over, in this part of the run
  std::string config_hash;
};

class RunFolder {
 public:
  // Makes the folder, or with is_resume opens one that holds a run. Locks it until the object or the process
  // ends. kUsage error if it is not empty (not is_resume), holds no run (is_resume), or another process has
  // the lock; kDisk error if it cannot be written.
  RunFolder(const std::filesystem::path& folder, bool is_resume);
  // Of a rank above 0, in the run's folder, which rank 0 has opened. kUsage or kDisk error as above.
  static std::unique_ptr<RunFolder> of_rank(const std::filesystem::path& folder, int rank);
  ~RunFolder();
  RunFolder(const RunFolder&) = delete;
  RunFolder& operator=(const RunFolder&) = delete;

  const std::filesystem::path& path() const { return folder_; }
  bool is_lead() const { return folder_ == run_; }  // rank 0's
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
  // run.json: the machine, then the summary's fields. Atomic. NaN and absent values are null.
  void write_summary(const RunSummary& run) const;

 private:
  RunFolder(std::filesystem::path folder, std::filesystem::path run);

  std::filesystem::path folder_, run_;
  int lock_ = -1;  // file descriptor
};

// "demo-20261121-031500" of a preset's or file's name and a time, in local time; "run-..." without a name.
std::string default_run_name(const std::string& name, std::time_t now);

}  // namespace ingot
