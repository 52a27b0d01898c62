// Chooses the runs of a sweep that continue: all of them or, by successive halving (Jamieson and Talwalkar
// 2016, arXiv:1502.07943), only those that were the best when all had made an equal part of their steps.
//
// Round k of n, counted from 0, ends after steps / eta^(n - 1 - k), rounded up. All settings train to the end
// of round 0. There the best 1 / eta of them (rounded up), by the mean of their validation losses over the
// seeds, continue with the next round; the others stop. A run that diverged or failed counts as worse than
// any other. Every run keeps the schedule of its whole length.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

namespace ingot {

// Returns the number of rounds that leaves one setting, limited so that no round ends before a first step.
// Returns 1 if eta <= 1.
int halving_rounds(size_t settings, int64_t fewest_steps, double eta);

// Returns the step after which a round ends in a run of `steps` steps.
int64_t end_of_round(int64_t steps, int round, int rounds, double eta);

// Returns the validation loss of a run after `steps` steps: infinite if the run ended earlier without it,
// nullopt if the run has not reached that step yet.
using LossAt = std::function<std::optional<double>(size_t run, int64_t steps)>;

// HalvingRun holds the setting and the whole length of a run of a sweep.
struct HalvingRun {
  size_t setting = 0;
  int64_t steps = 0;
};

struct HalvingTargets {
  std::vector<int64_t> steps;    // step to which each run trains now; 0: it is there already, or is stopped
  std::vector<bool> is_stopped;  // runs of settings that were not among the best
};

HalvingTargets halving_targets(const std::vector<HalvingRun>& runs, double eta, const LossAt& loss_at);

}  // namespace ingot
