// A run whose steps a test makes one by one, so that it can change the run's memory between them.
#pragma once

#include <atomic>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "ingot/console/console.h"
#include "ingot/core/philox.h"
#include "ingot/parallel/parallelize.h"
#include "ingot/run/guarded_step.h"
#include "ingot/run/run_saver.h"
#include "ingot/run/run_start.h"
#include "ingot/run/step_reporter.h"

namespace ingot {

class WatchedRun {
 public:
  WatchedRun(const RunConfig& config, const std::filesystem::path& out, Mesh& mesh)
      : folder_(open(out, *mesh.world)),
        console_([this](std::string_view line) { said += line; }, 0),
        setup_(*load_run(config, std::nullopt, *folder_, console_, is_interrupted_, *mesh.world)),
        store_(folder_->checkpoints()),
        run(setup_, store_, parallelize(setup_.config, mesh)),
        saver(setup_, run, progress_, start_or_resume(setup_, run, progress_)),
        reporter_(setup_, run.trainer, run.guard, progress_, run.log),
        step(setup_, run, progress_, saver, reporter_) {
    saver.save();
  }

  // Makes steps up to and including this number, and saves after every fifth one.
  void go_to(int64_t steps) {
    while (run.steps_done() < steps) {
      if (!step.make(false)) continue;
      losses[run.steps_done()] = run.guard.losses().values().back();
      if (run.steps_done() % 5 == 0 && step.is_sound()) saver.save();
    }
  }

  // All memory that a step leaves to the next: weights, tails, copies, optimizer state.
  std::vector<Tensor> memory() {
    std::vector<Tensor> all;
    for (const ParamShard& shard : run.trainer.params().shards())
      for (const Tensor& t : {shard.w, shard.tail, shard.compute})
        if (t && t.elements() > 0) all.push_back(t);
    for (const Optimizer::State& state : run.trainer.state().optimizer.states())
      if (state.tensor.elements() > 0) all.push_back(state.tensor);
    return all;
  }
  // Flips one bit of it, chosen by the number.
  void flip(uint64_t number) {
    const std::vector<Tensor> all = memory();
    const RandomKey key{.seed = 99, .purpose = Purpose::kSample, .stream = 0, .step = 0};
    const Tensor& t = all[random_word(key, 3 * number) % all.size()];
    auto* bytes = static_cast<unsigned char*>(t.data);
    bytes[random_word(key, 3 * number + 1) % t.bytes()] ^=
        static_cast<unsigned char>(1U << (random_word(key, 3 * number + 2) % 8));
  }
  std::string bytes() {
    std::string all;
    for (const Tensor& t : memory()) all.append(static_cast<const char*>(t.data), t.bytes());
    return all;
  }

  std::string said;
  std::map<int64_t, double> losses;  // the last one of each step

 private:
  static std::unique_ptr<RunFolder> open(const std::filesystem::path& out, Communicator& world) {
    std::unique_ptr<RunFolder> folder;
    if (world.rank() == 0) folder = std::make_unique<RunFolder>(out, false);
    world.barrier("folder");
    if (world.rank() > 0) folder = RunFolder::of_rank(out, world.rank());
    return folder;
  }

  std::unique_ptr<RunFolder> folder_;
  std::atomic<bool> is_interrupted_ = false;
  Console console_;
  const RunSetup setup_;
  CheckpointStore store_;
  Progress progress_;

 public:
  RunServices run;
  RunSaver saver;

 private:
  StepReporter reporter_;

 public:
  GuardedStep step;
};

}  // namespace ingot
