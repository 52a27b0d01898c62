// Programs of the ranks of a job: what each rank computes, starts and waits for in one training step, in
// order. schedule_simulation.h runs them in virtual time.
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
  // kStart: an operation of a group begins. Several may be in flight. Those of one group run in the order of
  // their starts, except messages (send, receive), which are independent of the collectives and keep their
  // order per pair of ranks.
  CommOperation::Kind operation = CommOperation::Kind::kBarrier;
  int group = 0;  // index into the rank's list of groups
  int peer = 0;   // rank within the group: root of a broadcast, the other rank of a message
  uint64_t bytes =
      0;  // size of the larger tensor: all_gather's output, reduce_scatter's input, the tensor of
          // all_reduce, broadcast and messages
  uint32_t ticket = 0;  // kStart, kWait: number of the operation within the program
};

struct RankProgram {
  std::vector<std::string> names;
  std::vector<ProgramOp> ops;
};

// A job of several ranks.
struct RankPrograms {
  std::vector<std::shared_ptr<const RankProgram>> programs;  // per rank; ranks with equal work share one
  std::vector<std::vector<int>> groups;   // groups[rank][k]: index into members of the rank's k-th group
  std::vector<std::vector<int>> members;  // world ranks of each group, in order
};

}  // namespace ingot
