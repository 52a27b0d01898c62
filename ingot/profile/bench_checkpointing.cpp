#include "ingot/profile/bench_checkpointing.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "ingot/core/median.h"
#include "ingot/parallel/parallelize.h"
#include "ingot/profile/bench_data.h"
#include "ingot/train/local_executor.h"
#include "ingot/train/trainer.h"

namespace ingot {
namespace {

using Part = RecomputePart;
using Policy = RecomputePolicy;

struct Contender {
  std::string name;
  RecomputeConfig config;
};

// The first policy keeps everything and is the reference for the others; the second does the same, so its
// difference shows the noise.
std::vector<Contender> contenders(int64_t layers) {
  const auto parts = [](std::vector<Part> list) {
    return RecomputeConfig{.policy = Policy::kSelective, .parts = std::move(list)};
  };
  std::vector<Contender> all = {{"none", {.policy = Policy::kNone}},
                                {"none again", {.policy = Policy::kNone}},
                                {"embedding", parts({Part::kEmbedding})},
                                {"norms", parts({Part::kNorms})},
                                {"activation", parts({Part::kActivation})},
                                {"norms, activation (default)", {}},
                                {"attention", parts({Part::kAttention})},
                                {"mlp", parts({Part::kMlp})},
                                {"attention, mlp", parts({Part::kAttention, Part::kMlp})},
                                {"block", {.policy = Policy::kBlock}}};
  if (layers >= 2) all.push_back({"every 2nd block", {.policy = Policy::kEveryK, .k = 2}});
  if (layers >= 3) all.push_back({"sqrt", {.policy = Policy::kSqrt}});
  return all;
}

// Returns the order statistics that contain the median of the distribution with 95 % confidence (normal
// approximation of the binomial); the range of all values if there are too few.
std::pair<double, double> median_interval(std::vector<double> values) {
  std::ranges::sort(values);
  const auto n = static_cast<double>(values.size());
  const double half = 1.96 * std::sqrt(n) / 2;
  const auto low = static_cast<size_t>(std::max(0.0, std::floor(n / 2 - half)));
  const auto high = static_cast<size_t>(std::min(n - 1, std::ceil(n / 2 + half)));
  return {values[low], values[high]};
}

}  // namespace

CheckpointingBench bench_checkpointing(const RunConfig& given, int64_t rounds) {
  bench::require_one_rank(given);
  RunConfig config = bench::runnable(given);
  config.activations = {.policy = Policy::kNone};
  Trainer trainer(config, parallelize(config));
  trainer.initialise();
  const TokenSource tokens = bench::random_tokens(config);
  const Sampler sampler(SampleOrder::kRandom, config.train.seed, tokens.tokens(), config.model.context);
  Loader loader(tokens, sampler, {.shape = trainer.layout().batch_shape});
  const double lr = config.optimizer.lr * 0.1;

  CheckpointingBench result;
  result.preset = config.preset;
  result.dtype = name(config.precision.compute);
  result.rounds = rounds;
  result.layers = config.model.layers;
  result.batch_size = config.train.batch_size;
  result.context = config.model.context;
  const std::vector<Contender> all = contenders(config.model.layers);
  std::vector<RecomputePlan> plans;
  for (const Contender& contender : all) {
    plans.push_back(recompute_plan(contender.config, config.model.layers));
    Arena arena("activations plan");
    trainer.layout().model->make_saved(arena, config.train.batch_size, config.model.context, plans.back());
    result.rows.push_back({.policy = contender.name, .activation_bytes = arena.peak_bytes()});
  }

  std::vector<std::vector<double>> times_ms(all.size()), ratios(all.size()), recompute_ms(all.size());
  for (int64_t round = -1; round < rounds; ++round)  // round -1 warms up memory, primitives and caches
    for (size_t i = 0; i < all.size(); ++i) {
      dynamic_cast<LocalExecutor&>(*trainer.layout().executor).set_recompute(plans[i]);
      trainer.trace().reset();
      const bench::Clock::time_point start = bench::Clock::now();
      trainer.step(loader, {.lr = lr});
      if (round < 0) continue;
      times_ms[i].push_back(bench::milliseconds_since(start));
      ratios[i].push_back(times_ms[i].back() / times_ms[0].back());
      recompute_ms[i].push_back(1e3 * trainer.trace().time_s("recompute"));
    }
  for (size_t i = 0; i < all.size(); ++i) {
    CheckpointingBench::Row& row = result.rows[i];
    row.step_ms = median(times_ms[i]);
    row.recompute_ms = median(recompute_ms[i]);
    row.time_change = median(ratios[i]) - 1;
    const auto [low, high] = median_interval(ratios[i]);
    row.time_change_low = low - 1;
    row.time_change_high = high - 1;
    row.bytes_change = static_cast<double>(row.activation_bytes) /
                           static_cast<double>(result.rows.front().activation_bytes) -
                       1;
  }
  return result;
}

}  // namespace ingot
