// The services of a run: what its loop, its saver and its reporter work with.
#pragma once

#include <optional>
#include <utility>

#include "ingot/checkpoint/checkpoint_store.h"
#include "ingot/core/time_limit.h"
#include "ingot/data/loader.h"
#include "ingot/run/progress.h"
#include "ingot/run/record/heartbeat.h"
#include "ingot/run/record/run_log.h"
#include "ingot/run/run_setup.h"
#include "ingot/train/guard.h"
#include "ingot/train/trainer.h"

namespace ingot {

struct RunServices {
  // Allocates all memory of a step. Borrows the setup and the store.
  RunServices(const RunSetup& setup, CheckpointStore& checkpoints, Layout layout)
      : store(checkpoints),
        trainer(setup.config, std::move(layout)),
        loader(setup.data.train, setup.sampler,
               {.shape = trainer.layout().batch_shape,
                .readers = trainer.layout().data_shard.ranks,
                .reader = trainer.layout().data_shard.rank,
                .workers = setup.config.data.workers,
                .prefetch = setup.config.data.prefetch}),
        guard(setup.config.guard),
        log(setup.folder, setup.resumed ? std::optional(setup.resumed->checkpoint.step + 1) : std::nullopt),
        time_limit(setup.world.time_limit()),
        heartbeat(setup.folder.heartbeat()) {}

  int64_t steps_done() const { return trainer.state().steps_done; }
  // Passes the phase that the ranks begin now to the time limit, and writes a heartbeat with it. work: as in
  // TimeLimit::begin.
  void begin_phase(TimeLimit::Phase phase, int64_t work = 1) {
    time_limit.begin(phase, work);
    beat();
  }
  // Writes a heartbeat if the last one is old enough.
  void beat() { heartbeat.beat(steps_done(), time_limit.phase(), time_limit.seconds()); }

  CheckpointStore& store;
  Trainer trainer;
  Loader loader;
  Guard guard;
  RunLog log;
  TimeLimit& time_limit;
  Heartbeat& heartbeat;
};

// Begins a phase other than a step, and reports at its end how long it took.
class TimedPhase {
 public:
  TimedPhase(RunServices& services, TimeLimit::Phase phase) : limit_(services.time_limit) {
    services.begin_phase(phase);
  }
  ~TimedPhase() { limit_.end(seconds_since(start_)); }
  TimedPhase(const TimedPhase&) = delete;
  TimedPhase& operator=(const TimedPhase&) = delete;

 private:
  TimeLimit& limit_;
  RunClock::time_point start_ = RunClock::now();
};

}  // namespace ingot
