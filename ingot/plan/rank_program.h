// RankProgram: what one rank of a job does in a step, as a list of operations in program order. A recording
// of the real trainer makes it (plan/step_record.h); the simulation runs it (plan/schedule_simulation.h).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "ingot/comm/communicator.h"

namespace ingot {

struct ProgramOp {
  enum class Kind : uint8_t { kCompute, kStart, kWait };
  Kind kind = Kind::kCompute;
  int name = 0;        // index into RankProgram::names
  double seconds = 0;  // kCompute: how long the rank's device works
  // kStart: an operation of a group begins. Several may be in flight; those of one group run in the order
  // of their starts, except messages (send, receive), which are independent of the collectives and keep
  // their order per pair of ranks.
  CommOperation::Kind operation = CommOperation::Kind::kBarrier;
  int group = 0;        // index into the rank's list of groups
  int peer = 0;         // rank within the group: root of a broadcast, the other rank of a message
  uint64_t bytes = 0;   // of the larger tensor: all_gather's output, reduce_scatter's input, a message
  uint32_t ticket = 0;  // kStart, kWait: number of the operation within the program
};

struct RankProgram {
  std::vector<std::string> names;
  std::vector<ProgramOp> ops;
};

// A job.
struct RankPrograms {
  std::vector<std::shared_ptr<const RankProgram>> programs;  // per rank; ranks with equal work share one
  std::vector<std::vector<int>> groups;                      // groups[rank][k] = index into members
  std::vector<std::vector<int>> members;                     // world ranks of each group, in order
};

}  // namespace ingot
