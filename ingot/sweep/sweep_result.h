// SweepResult is the verdict of a sweep: a mean and an interval for every setting, the best setting, those
// that cannot be distinguished from it, and the optimum of every key.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "ingot/sweep/run_result.h"
#include "ingot/sweep/statistics.h"
#include "ingot/sweep/sweep_spec.h"

namespace ingot {

struct SettingResult {
  std::vector<std::string> values;  // parallel to SweepSpec::vary
  std::vector<double> losses;       // final validation loss by seed; infinite if the run diverged or failed
  bool is_complete = false;         // every seed's run has ended; false if stopped by halving
  MeanInterval loss;                // if complete and finite
  MeanInterval to_best;             // loss - that of the best setting, paired by seed
  std::string status;               // that of the run which is furthest behind
  bool has_loss() const;            // complete and finite
};

// The optimum of one key; the other keys have the values of the best setting.
struct KeyOptimum {
  std::string key;
  Optimum fit = {};  // x is a logarithm if is_log
  bool is_log = false;
  double value = 0;  // of the key
  std::optional<Interval> interval = {};
};

struct SweepResult {
  std::vector<SettingResult> settings;  // by SweepRun::setting
  std::optional<size_t> best;           // the lowest mean loss
  std::vector<size_t> not_told_apart;   // settings whose interval of to_best includes 0
  std::vector<KeyOptimum> optima;       // of keys with at least three numbers
};

// runs and results are parallel.
SweepResult judge_sweep(const SweepSpec& spec, const std::vector<SweepRun>& runs,
                        const std::vector<RunResult>& results);

// "0.0031, between 0.0024 and 0.004 (95 %)", or why there is no such figure.
std::string optimum_text(const KeyOptimum& optimum);

}  // namespace ingot
