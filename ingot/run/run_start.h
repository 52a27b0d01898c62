// Puts a run at its start or at a checkpoint. All ranks call each function together.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>

#include "ingot/run/run_services.h"

namespace ingot {

// Returns the newest checkpoint that rank 0 finds healthy, before the given step; only rank 0 reads every
// byte. Damaged ones are reported on its console.
std::optional<Checkpoint> newest_healthy(const CheckpointStore& store, Console& console, Communicator& world,
                                         int64_t before_step = std::numeric_limits<int64_t>::max());

struct Restored {
  TrainerState state;
  SavedCheckpoints saved;
};
// Restores everything except the clock to the state of the checkpoint.
Restored restore(const Checkpoint& checkpoint, const RunSetup& setup, RunServices& services,
                 Progress& progress);

// Sets the weights of a new run, or restores a resumed one. Throws a kData error if the ranks have different
// text, and a kUsage error if the checkpoint does not fit the configuration or the text.
SavedCheckpoints start_or_resume(const RunSetup& setup, RunServices& services, Progress& progress);

}  // namespace ingot
