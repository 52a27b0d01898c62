// Runs the programs of a job (plan/rank_program.h) in virtual time on a cluster: when each rank computes, when
// each operation between ranks runs, and how long ranks wait.
//
// An operation begins when all ranks of its group have started it and the group's earlier operations have
// ended. It first takes its latency, then moves its bytes. Operations that use the same link at a time share
// it equally. Computing is not slowed down by communication. A wait ends with its operation.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "ingot/plan/network.h"
#include "ingot/plan/rank_program.h"

namespace ingot {

struct TimelineRow {
  enum class Kind : uint8_t { kCompute, kWait, kOperation };
  Kind kind = Kind::kCompute;
  std::string name;
  std::string group;  // of an operation: the names of the rank's list, by index
  double begin_s = 0, end_s = 0;
};

struct RankOutcome {
  double end_s = 0;       // of the rank's program
  double busy_s = 0;      // computing
  double waited_s = 0;    // for other ranks
  double operated_s = 0;  // sum of the durations of its operations, from the last rank's start on
  std::map<int, double> waited_by_group;  // by the rank's own list of groups
};

struct ScheduleOutcome {
  double step_s = 0;  // until the last rank has ended
  std::vector<RankOutcome> ranks;
  std::map<int, std::vector<TimelineRow>> timelines;  // of the ranks that were asked for
  int64_t operations = 0;
};

// timelines_of: the ranks whose timelines are wanted. Throws a kInternal error if ranks wait for each other
// forever, naming their operations, or if the ranks of a group start different operations.
ScheduleOutcome simulate_schedule(const RankPrograms& job, const Hardware& hardware,
                                  const std::vector<int>& timelines_of = {});

}  // namespace ingot
