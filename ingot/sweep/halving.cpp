#include "ingot/sweep/halving.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

namespace ingot {

int halving_rounds(size_t settings, int64_t fewest_steps, double eta) {
  int rounds = 1;
  if (eta <= 1) return rounds;
  auto left = static_cast<double>(settings);
  for (double length = static_cast<double>(fewest_steps) / eta; left > 1 && length >= 1; length /= eta) {
    left = std::ceil(left / eta);
    ++rounds;
  }
  return rounds;
}

int64_t end_of_round(int64_t steps, int round, int rounds, double eta) {
  if (round + 1 == rounds) return steps;
  return static_cast<int64_t>(std::ceil(static_cast<double>(steps) / std::pow(eta, rounds - 1 - round)));
}

HalvingTargets halving_targets(const std::vector<HalvingRun>& runs, double eta, const LossAt& loss_at) {
  HalvingTargets targets{.steps = std::vector<int64_t>(runs.size()),
                         .is_stopped = std::vector<bool>(runs.size())};
  std::map<size_t, double> losses;  // of the settings that continue: the sum over the seeds
  int64_t fewest = std::numeric_limits<int64_t>::max();
  for (const HalvingRun& run : runs) {
    losses[run.setting] = 0;
    fewest = std::min(fewest, run.steps);
  }
  const int rounds = halving_rounds(losses.size(), fewest, eta);
  for (int round = 0; round < rounds; ++round) {
    for (auto& [setting, loss] : losses) loss = 0;
    bool waits = false;
    for (size_t i = 0; i < runs.size(); ++i) {
      if (targets.is_stopped[i]) continue;
      const int64_t end = end_of_round(runs[i].steps, round, rounds, eta);
      const std::optional<double> loss = loss_at(i, end);
      if (!loss) targets.steps[i] = end;
      waits |= !loss;
      losses[runs[i].setting] += loss.value_or(0);
    }
    if (waits || round + 1 == rounds) return targets;
    std::vector<std::pair<double, size_t>> ranking;
    for (const auto& [setting, loss] : losses) ranking.emplace_back(loss, setting);
    std::ranges::sort(ranking);
    const auto kept = static_cast<size_t>(std::ceil(static_cast<double>(ranking.size()) / eta));
    for (size_t i = kept; i < ranking.size(); ++i) losses.erase(ranking[i].second);
    for (size_t i = 0; i < runs.size(); ++i) targets.is_stopped[i] = !losses.contains(runs[i].setting);
  }
  return targets;
}

}  // namespace ingot
