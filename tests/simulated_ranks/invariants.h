// These functions check what must hold after a seed, whatever happened in it. Each of them ends the seed
// (verdict.h) if it does not hold.
#pragma once

#include <filesystem>
#include <vector>

#include "ingot/launch/incident.h"
#include "tests/simulated_ranks/scenario.h"
#include "tests/simulated_ranks/simulated_job.h"

namespace ingot::simulated {

// The newest checkpoint is good and at least as new as every one that was reported as saved. As many
// good ones are left as should be kept, unless a fault damaged one.
void require_saved_checkpoints(const std::filesystem::path& run, const SimulatedJob& job);
// Every rank of every attempt continues from the newest checkpoint, makes each step once and in order, and
// has the undisturbed losses: the same bits as long as the layout is the configured one, and a relative
// difference of at most 1e-6 afterwards.
void require_steps(const Scenario& scenario, const Undisturbed& undisturbed, const SimulatedJob& job);
// metrics.jsonl has every step once, with its loss and the tokens so far; run.json and the last checkpoint
// say that the run is complete.
void require_complete_run(const Scenario& scenario, const Undisturbed& undisturbed, const SimulatedJob& job,
                          const std::filesystem::path& run);
// The incidents of one supervisor name what the faults did, in order. first: its first attempt.
void require_incidents(const Scenario& scenario, const SimulatedJob& job,
                       const std::vector<Incident>& incidents, size_t first);

}  // namespace ingot::simulated
