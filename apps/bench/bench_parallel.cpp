#include "apps/bench/bench_parallel.h"

#include <fmt/core.h>

#include <array>
#include <atomic>
#include <memory>
#include <span>
#include <vector>

#include "apps/bench/bench_operations.h"
#include "apps/ranks.h"
#include "ingot/core/file.h"
#include "ingot/parallel/parallelize.h"
#include "ingot/profile/bench_data.h"
#include "ingot/profile/overlap.h"
#include "ingot/train/trainer.h"

namespace ingot {
namespace {

// A training on random tokens on one rank of a mesh.
struct Steps {
  Trainer trainer;
  TokenSource tokens;
  Sampler sampler;
  Loader loader;
  double lr;
  double stages_wait_s = 0, stages_s = 0;
  std::vector<double> losses;
  std::vector<StepBegin> begins;

  Steps(const RunConfig& config, Mesh& mesh)
      : trainer(config, parallelize(config, mesh)),
        tokens(bench::random_tokens(config)),
        sampler(SampleOrder::kRandom, config.train.seed, tokens.tokens(), config.model.context),
        loader(tokens, sampler,
               {.shape = trainer.layout().batch_shape,
                .readers = trainer.layout().data_shard.ranks,
                .reader = trainer.layout().data_shard.rank}),
        lr(config.optimizer.lr * 0.1) {
    trainer.initialise();
  }
  void run(int64_t steps, const CommLog& log) {
    for (int64_t i = 0; i < steps; ++i) {
      begins.push_back({CommLog::Clock::now(), log.operations()});
      losses.push_back(trainer.step(loader, {.lr = lr}).loss);
      if (const auto& pipeline = trainer.layout().executor->pipeline()) {
        stages_wait_s += pipeline->wait_s;
        stages_s += pipeline->step_s;
      }
    }
  }
};

void write_trace(const std::string& path, const std::string& own, Communicator& world) {
  std::string all = "[\n";
  for (int rank = 0; rank < world.size(); ++rank) {
    std::string lines = rank == world.rank() ? own : std::string();
    world.broadcast_text(lines, rank);
    all += lines;
  }
  all.resize(all.size() - 2);  // drops the last comma
  if (world.rank() == 0) write_file(path, all + "\n]\n");
}

void print(const RunConfig& config, const Overlap& worst, double step_s,
           const ParallelBenchOptions& options) {
  fmt::print("{}, {:.1f} ms per operation at the least, {} steps of {:.1f} ms\n", config.parallel.to_string(),
             1e3 * config.parallel.delay_s, options.steps, 1e3 * step_s);
  const double steps = static_cast<double>(options.steps);
  fmt::print("per step: {} operations of {:.1f} ms in all, {:.1f} ms exposed\n",
             worst.operations / options.steps, 1e3 * worst.ran_s / steps, 1e3 * worst.waited_s / steps);
  // With tensor parallelism or stages, ranks also wait for each other within a step, so the overlap figure
  // only applies without them.
  if (config.parallel.tp == 1 && config.parallel.pp == 1)
    fmt::print("{:.1f} ms of them nothing can hide; of the others {:.1f}% are hidden\n",
               1e3 * worst.unhideable_s / steps, 100 * worst.hidden());
}

// Rank 0 prints the figures of the rank that hides the least.
void print_overlap(const Steps& steps, const Overlap& own, double step_s, const RunConfig& config,
                   const ParallelBenchOptions& options, Communicator& world) {
  const double least = world.max(-own.hidden());
  const double speaker = world.max(-own.hidden() == least ? world.rank() : -1);
  std::array<double, 4> numbers{own.ran_s, own.waited_s, own.unhideable_s,
                                static_cast<double>(own.operations)};
  const bool speaks = static_cast<int>(speaker) == world.rank();
  if (!speaks) numbers = {};
  world.sum(numbers);
  std::array<double, 2> stages{steps.stages_wait_s, steps.stages_s};
  world.sum(stages);
  if (world.rank() != 0) return;
  print(config,
        {.operations = static_cast<int64_t>(numbers[3]),
         .ran_s = numbers[0],
         .waited_s = numbers[1],
         .unhideable_s = numbers[2]},
        step_s, options);
  if (const auto& pipeline = steps.trainer.layout().executor->pipeline())
    fmt::print("pipeline {}: waits for stages {:.1f}% of a step, (p-1)/(vm+p-1) = {:.1f}%\n",
               pipeline->layout, 100 * stages[0] / stages[1], 100 * pipeline->ideal_bubble);
}

void measure(Mesh& mesh, const RunConfig& config, const ParallelBenchOptions& options, CommLog& log) {
  Communicator& world = *mesh.world;
  Steps steps(config, mesh);
  steps.run(2, log);  // memory, primitives and caches are warm after two
  world.barrier("start");
  log.take();
  const auto start = CommLog::Clock::now();
  steps.stages_wait_s = steps.stages_s = 0;
  steps.run(options.steps, log);
  const double step_s = std::chrono::duration<double>(CommLog::Clock::now() - start).count() /
                        static_cast<double>(options.steps);
  const std::vector<CommLog::Event> events = log.take();
  if (options.is_json) {
    const std::span begins = std::span(steps.begins).last(static_cast<size_t>(options.steps));
    print_operations({.events = events, .begins = begins}, config.parallel.to_string(), step_s, steps.losses,
                     world);
  } else {
    print_overlap(steps, measure_overlap(events, config.parallel, options.steps), step_s, config, options,
                  world);
  }
  if (options.trace.empty()) return;
  write_trace(options.trace, chrome_trace(events, start, world.rank()), world);
}

}  // namespace

void bench_parallel(const RunConfig& given, const ParallelBenchOptions& options) {
  const RunConfig config = bench::runnable(given);
  CommLog log;
  const std::atomic<bool> is_stop_requested{false};
  run_on_ranks(
      config, is_stop_requested, [&](Mesh& mesh) { measure(mesh, config, options, log); }, &log);
}

}  // namespace ingot
