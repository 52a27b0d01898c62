// Comparison holds the differences between several runs: the keys in which their configurations differ, and
// the differences of their losses with intervals. Runs that differ only in train.seed form a group, and every
// group is compared with the first. A repetition of a run forms a group of its own.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "ingot/sweep/compared_run.h"
#include "ingot/sweep/statistics.h"

namespace ingot {

struct RunGroup {
  std::string name;          // the values in which it differs from the others, or its first run's folder
  std::vector<size_t> runs;  // indices into Comparison::runs
};

// The difference of a group from the first one.
struct LossDifference {
  size_t group = 0;
  std::string quantity;  // "val_loss", "val_bits_per_byte", "train_loss", or one of ComparedRun::figures
  MeanInterval value;    // above 0: higher than the first group's
  std::string method;    // what the interval covers, as part of a sentence
  // Returns "lower", "higher" or "not told apart"; empty if there is no interval.
  std::string verdict() const;
};

struct SettingDifference {
  std::string key;
  std::vector<std::string> values;  // by group; empty: the group has no such key
};

struct Comparison {
  std::vector<ComparedRun> runs;
  std::vector<RunGroup> groups;
  std::vector<SettingDifference> settings;
  std::vector<LossDifference> differences;
  std::vector<std::string> remarks;   // what must be known to read the figures
  size_t group_of(size_t run) const;  // index into groups
};

// REQUIRES: at least one run.
Comparison compare_runs(std::vector<ComparedRun> runs);

// The mean training loss over the last fifth of the tokens that both runs have seen, second minus first. The
// range is divided into ten blocks of equal tokens, fewer if steps are few. The interval is that of the
// blocks' differences. It covers the noise between batches, not that between seeds. nullopt if the runs share
// fewer than two steps' tokens.
std::optional<MeanInterval> curve_difference(const MetricsCurve& first, const MetricsCurve& second);

}  // namespace ingot
