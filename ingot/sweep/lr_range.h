// The learning-rate range test (Smith 2015, arXiv:1506.01186): one short run whose rate grows by a constant
// factor per step. The loss falls, and rises once the rate is too high. A sweep begins with the rates at the
// end of the fall.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "ingot/config/config.h"
#include "ingot/formats/chart/svg_plot.h"
#include "ingot/sweep/statistics.h"

namespace ingot {

struct LrRangeSpec {
  double from = 1e-5, to = 1;  // values of optimizer.lr
  int64_t steps = 100;

  // Throws a kUsage error that names the flag.
  void validate() const;
  // The rate of a step's update; steps count from 1.
  double rate(int64_t step) const;
};

struct LrRange {
  // Entry i belongs to the update of one step: its rate, and the loss of the step after it. A loss that is
  // not finite stands for all that would have followed.
  std::vector<double> rates, losses;
  std::vector<double> smoothed;      // losses without their noise
  size_t lowest = 0;                 // index of the lowest smoothed loss before the loss rises
  std::optional<double> rises_at;    // the first rate at which the loss has risen
  std::optional<double> knee;        // the rate at which nine tenths of the fall are done
  std::optional<Interval> interval;  // where the best rate of a longer run is to be looked for
  std::string problem;               // why there is no interval, and what to change
};

// Returns the configuration of the test: that of the run with `steps` steps, the growing rate in place of its
// schedule, and neither checkpoints nor samples on the way. Groups with rates of their own keep their ratio
// to optimizer.lr. Throws a kUsage error if the configuration has several ranks, or if optimizer.lr is 0.
RunConfig lr_range_config(RunConfig config, const LrRangeSpec& spec);

// Judges the losses by this rule: the loss is smoothed over a twentieth of the steps and followed until it
// rises by 3 % of its fall and by twice its noise, or is not finite. Once nine tenths of that fall are done,
// higher rates gain little: the interval goes from a quarter of that rate to four times it. There is no
// interval if the loss never falls by four times its noise, or never rises. bench/reproduce/lr_range.py
// compares the intervals with the optima of sweeps. REQUIRES: equal sizes.
LrRange judge_lr_range(std::vector<double> rates, std::vector<double> losses);

// Reads the losses from the metrics.jsonl of the test's run, and judges them.
LrRange read_lr_range(const std::filesystem::path& run, const LrRangeSpec& spec);

// The loss over the rate.
LinePlot lr_range_plot(const LrRange& range);

// "--vary optimizer.lr=0.001..0.016:log:5". REQUIRES: there is an interval.
std::string lr_range_vary(const LrRange& range);

}  // namespace ingot
