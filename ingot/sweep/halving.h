// Which runs of a sweep go on: all of them to their end or, by successive halving (Jamieson and Talwalkar 2016,
// arXiv:1502.07943), only those that were the best when all had made an equal part of their steps.
//
// Round k of n, counted from 0, ends after steps / eta^(n - 1 - k), rounded up. All settings train to the end of round
// 0. There the best 1 / eta of them (rounded up), by the mean of their validation losses over the seeds, go on to the
// next; the others stop. A run that diverged or failed counts as worse than any other. Every run keeps the schedule of
// its whole length.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

namespace ingot {

// The number of rounds: as many as leave one setting, but none that would end before a first step; 1 if eta <= 1.
int halving_rounds(size_t settings, int64_t fewest_steps, double eta);

// The step after which a round of a run of `steps` ends.
int64_t end_of_round(int64_t steps, int round, int rounds, double eta);

// The validation loss of a run after so many steps: infinite if it ended before without one, nullopt if it has not yet
// got so far.
using LossAt = std::function<std::optional<double>(size_t run, int64_t steps)>;

// The runs of a sweep: the setting and the whole length of each.
struct HalvingRun {
  size_t setting = 0;
  int64_t steps = 0;
};

struct HalvingTargets {
  std::vector<int64_t> steps;    // to which each run should train now; 0: it has, or is stopped
  std::vector<bool> is_stopped;  // runs of settings that were not among the best
};

HalvingTargets halving_targets(const std::vector<HalvingRun>& runs, double eta, const LossAt& loss_at);

}  // namespace ingot
