// Plan: what a run will take, before it starts: memory, the time of a step and where it goes, and the tokens,
// hours and energy to the end. The trainer itself is built and its step recorded (plan/dry_step.h), so the
// plan follows the code.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ingot/config/config.h"
#include "ingot/memory/memory_plan.h"
#include "ingot/plan/hardware.h"
#include "ingot/plan/job.h"
#include "ingot/plan/schedule_simulation.h"

namespace ingot {

struct ModelPart {
  std::string name;            // "attention"
  int64_t parameters = 0;      // without padding
  double flops_per_token = 0;  // forward and backward, nothing computed twice
};

// The parts of a resolved configuration; they add up to parameters() and flops_per_token().
std::vector<ModelPart> model_parts(const ModelConfig& config);

struct RankMemory {
  std::vector<int> ranks;         // with the same memory, ascending
  std::vector<MemoryItem> items;  // arenas first
  uint64_t peak_bytes = 0;        // with a device: of the device
};

// The memory of all ranks (plan_memory), in the order of the first rank with it.
std::vector<RankMemory> plan_rank_memory(const RunConfig& config);

// PlanTarget describes the hardware that a run is planned for.
struct PlanTarget {
  Hardware hardware;
  bool is_machine = false;      // this machine, whose operations are measured
  uint64_t memory_bytes = 0;    // for a rank of other hardware, for all ranks of this machine
  std::string memory_source;    // "MemAvailable of /proc/meminfo"
  std::filesystem::path cache;  // of measurements; empty for none
  int threads = 1;              // of this machine, for all ranks together
  std::function<void(const std::string& what)>
      on_measuring;  // called before something is measured; may be null
};

struct StepPlan {
  double step_s = 0, tokens = 0;  // of a full step
  double exposed_comm_s = 0;      // mean over the ranks: waiting for operations that have begun
  double bubble =
      0;  // fraction of the step, mean over the ranks: waiting for ranks that have not started one
  std::map<std::string, double> parts;  // computing seconds of rank 0
  std::map<std::string, double> waits;  // seconds of rank 0 by group, for communication and for other ranks
  double ideal_bubble = 0;
};

struct RunLengthPlan {
  int64_t steps = 0, tokens = 0;
  double hours = 0, kwh = 0, cost = 0;  // without evaluations and checkpoints; kwh, cost: 0 if not known
};

struct Plan {
  RunConfig config;  // with the vocabulary and the device of the target
  std::string layout;
  int64_t parameters = 0;
  double flops_per_token = 0;
  std::vector<ModelPart> model;
  std::vector<RankMemory> memory;
  bool fits = true;
  std::string unfit;  // why not, and what fits
  StepPlan step;
  RunLengthPlan run;
  double tokens_per_s = 0, mfu = 0;
  RankPrograms programs;
  ScheduleOutcome schedule;
  std::string refused;  // why Ingot cannot run this layout on the target yet; empty if it can
};

// The configuration as the target runs it. kUsage error for what the trainer refuses anywhere.
RunConfig for_target(const RunConfig& config, const PlanTarget& target);

// Returns why the run's memory does not suffice on the target, and what would; "" if it suffices.
std::string memory_shortage(const RunConfig& config, const PlanTarget& target);

// timelines_of: ranks whose timelines the schedule keeps.
Plan make_plan(const RunConfig& config, const PlanTarget& target, const std::vector<int>& timelines_of = {});

// Tokens per parameter of a run that uses a given amount of computing best (Hoffmann et al. 2022,
// arXiv:2203.15556).
inline constexpr double kChinchilla = 20;

}  // namespace ingot
