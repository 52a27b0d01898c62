// Runs the programs of all ranks of a job in virtual time, over the links of a cluster.
//
// A rank runs its operations one after the other. kCompute occupies the rank for its seconds, and no other
// resource. kStart takes no time. kWait blocks until the operation between ranks has ended. Such an operation
// is ready when every rank of its group (of a message: sender and receiver) has started it. It begins when it
// is ready and the operation before it in its group has ended. It then takes its latency, and its bytes move
// at the rate that the fluid model gives them (network.h, fluid_network.h).
//
// A rank's step is the sum of
//   busy     it computes
//   exposed  it waits for an operation that is ready: communication that no computation hides
//   idle     it waits for other ranks to start an operation, or has finished before the last rank: the bubble
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "ingot/plan/hardware.h"
#include "ingot/plan/rank_program.h"

namespace ingot {

inline constexpr size_t kCommKinds = 8;  // number of CommOperation::Kind

struct WaitOutcome {
  int group = 0;     // index into the rank's list of groups
  std::string name;  // of the operation
  CommOperation::Kind kind = CommOperation::Kind::kBarrier;
  int64_t waits = 0;
  double exposed_s = 0, idle_s = 0;
};

struct RankOutcome {
  double busy_s = 0, exposed_s = 0, idle_s = 0;
  double done_s = 0;               // when the rank's program ended
  std::vector<WaitOutcome> waits;  // in the order of the program's first start of each
};

// Operations of one kind, summed over the ranks that take part.
struct KindOutcome {
  int64_t operations = 0;  // counted once, not per rank
  uint64_t bytes = 0;      // of the larger tensor, per operation
  double ran_s = 0;        // per rank, from its begin to its end
  double exposed_s = 0;    // of ran_s: ranks waited
};

struct TimelineSpan {
  enum class Track : uint8_t { kCompute, kWait, kOperation };
  Track track = Track::kCompute;
  int name = 0;    // index into RankProgram::names
  int group = -1;  // kWait, kOperation: index into the rank's list of groups
  double begin_s = 0, end_s = 0;
};
struct RankTimeline {
  int rank = 0;
  std::vector<TimelineSpan> spans;  // those of one track begin in ascending order
};

struct ScheduleOutcome {
  double step_s = 0;
  std::vector<RankOutcome> ranks;
  std::array<KindOutcome, kCommKinds> kinds;  // by CommOperation::Kind; a message counts as kSend
  std::vector<RankTimeline> timelines;        // of ScheduleOptions::timeline_ranks, in their order

  double bubble() const;   // mean over the ranks of idle_s / step_s
  double exposed() const;  // mean over the ranks of exposed_s / step_s
};

struct ScheduleOptions {
  std::vector<int> timeline_ranks;
};

// Simulates one step of the job. Equal input gives equal output. Throws a kInternal error if ranks wait for
// each other forever or an operation never begins (the error names the operation that each rank waits for),
// if the ranks of a group start different operations, or if a program names a group, peer, name or ticket
// that does not exist.
ScheduleOutcome simulate_schedule(const RankPrograms& job, const Hardware& hardware,
                                  const ScheduleOptions& options = {});

}  // namespace ingot
