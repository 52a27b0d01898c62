// RunView is a reader's view of a run's folder: the run's status, and the metrics that were read so far. It
// opens only regular files of the folder and follows no link inside it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "ingot/formats/chart/metrics_store.h"
#include "ingot/run/record/run_status.h"
#include "ingot/watch/line_tail.h"
#include "ingot/watch/offset_index.h"

namespace ingot {

// Used by one thread at a time.
class RunView {
 public:
  RunView(std::filesystem::path folder, std::string name);

  const std::filesystem::path& folder() const { return folder_; }
  const std::string& name() const { return name_; }  // the folder as it was given or found

  // Reads the status and the number of steps. Without a readable record the status is "unreadable" and its
  // error says why, or "gone" if the folder holds no run any more. Files of a run that has ended are read
  // again only if they have changed.
  void refresh_status();
  const RunStatus& status() const { return status_; }
  std::optional<int64_t> total_steps() const {
    return total_steps_;
  }                                                            // nullopt if time or tokens end the run
  bool has_ended() const;                                      // true if the run's process has ended
  const std::string& incidents() const { return incidents_; }  // a summary; empty without incidents

  // Reads at most `most_bytes` of new lines.
  void refresh_metrics(size_t most_bytes);
  void refresh_params(size_t most_bytes);
  const MetricsStore& metrics() const { return metrics_; }
  const MetricsStore& params() const { return params_; }
  bool is_behind() const { return metrics_tail_.is_behind(); }
  double read_fraction() const;  // of metrics.jsonl

  // Reads the lines with steps in [from, to] again, for a closer look than metrics() allows. nullopt if they
  // are more than `most_bytes`.
  std::optional<MetricsStore> read_range(double from, double to, size_t most_buckets,
                                         size_t most_bytes) const;

  // Seconds until the last step at the rate of the newest steps; nullopt if unknown.
  std::optional<double> seconds_left() const;

  std::string config() const;                // the text of config.toml
  std::vector<std::string> samples() const;  // file names, the oldest first
  // Returns nullopt unless the name is one of samples() and a regular file.
  std::optional<std::string> sample(const std::string& file) const;

 private:
  std::string stamp() const;

  std::filesystem::path folder_;
  std::string name_;
  std::string stamp_;  // of the files from which the status was read
  RunStatus status_;
  std::optional<int64_t> total_steps_;
  std::string incidents_;
  LineTail metrics_tail_, params_tail_;
  MetricsStore metrics_, params_;
  OffsetIndex offsets_;
};

}  // namespace ingot
