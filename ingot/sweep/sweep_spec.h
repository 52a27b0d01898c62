// SweepSpec is the command line of a sweep. The runs, their configurations and their names are a pure
// function of it, so a sweep that was killed finds its runs again.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ingot/config/config.h"
#include "ingot/sweep/vary.h"

namespace ingot {

struct SweepSpec {
  std::string source;                        // preset or file, as for `ingot train`
  std::vector<std::string> data, overrides;  // its --data and --set
  std::vector<Vary> vary;
  int64_t seeds = 1;
};

// One run: a value of every varied key, and a seed.
struct SweepRun {
  std::vector<std::string> values;  // parallel to SweepSpec::vary
  uint64_t seed = 0;
  size_t setting = 0;  // index of its values among all combinations; runs of one setting differ in the seed
  std::string name;    // its folder has this name: "optimizer.lr=0.001,seed=1337"
  RunConfig config;
};

// The configuration without the varied keys. Throws a kUsage error as `ingot train` does.
RunConfig base_config(const SweepSpec& spec);

// Returns all combinations of the values for the first seed, then for the next; the last key varies fastest.
// Throws a kUsage error that names the setting if one of the runs would be refused, if a key is varied twice,
// or if it is one that the sweep sets itself.
std::vector<SweepRun> sweep_runs(const SweepSpec& spec);

// "optimizer.lr=0.001 model.width=64"; "base" if nothing is varied.
std::string setting_text(const SweepSpec& spec, const SweepRun& run);

// The arguments of `ingot` that start the run or, with is_resume, continue it. stop_at: the step after which
// the run stops, or 0; the schedule is that of the whole length in either case.
std::vector<std::string> train_arguments(const SweepSpec& spec, const SweepRun& run,
                                         const std::string& folder, int threads, int64_t stop_at,
                                         bool is_resume);

// "ingot sweep SOURCE --data ... --set ...": the beginning of the sweep's command, without the varied keys.
std::vector<std::string> sweep_words(const SweepSpec& spec);

// The arguments as a line for a shell, quoted where necessary.
std::string shell_line(const std::vector<std::string>& arguments);

}  // namespace ingot
