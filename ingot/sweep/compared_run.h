// ComparedRun is what a comparison reads from the folder of a run.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "ingot/formats/metrics_log.h"

namespace ingot {

struct ComparedRun {
  std::string name;  // the folder, as given
  std::string status;
  uint64_t seed = 0;
  int64_t steps = 0, tokens = 0;
  std::optional<double> val_loss, val_bits_per_byte;  // the last evaluation measured these
  // The last evaluation's losses on data.val_sets ("code val loss") and accuracies in eval.tasks ("arc acc").
  std::map<std::string, double> figures;
  std::optional<double> tokens_per_s;  // the median over the steps
  std::optional<double> peak_rss_bytes;
  std::string commit, tokenizer_hash, val_hash;  // empty if unknown
  MetricsCurve train, validation;                // x: tokens trained on, y: nats per token
  std::map<std::string, std::string> settings;   // key -> value as in config.toml, without train.seed
};

// Reads run.json, config.toml and metrics.jsonl. Throws a kUsage error if the folder holds no run, and a
// kData error that names the file if one of them is damaged.
ComparedRun read_compared_run(const std::filesystem::path& folder);

// Replaces every folder that is not a run, such as a sweep's, by the runs in its subfolder runs/.
std::vector<std::filesystem::path> run_folders(const std::vector<std::string>& given);

// "section.key" -> value for every line of a config.toml that config_toml() wrote. The keys of the n-th
// [[optimizer.group]] begin with "optimizer.group n".
std::map<std::string, std::string> settings_of(const std::string& toml);

}  // namespace ingot
