// The run behind simulate_schedule() (schedule_simulation.h): ranks advance through their programs, and
// events in the order of virtual time begin and end the operations that ranks wait for.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <queue>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "ingot/plan/fluid_network.h"
#include "ingot/plan/network.h"
#include "ingot/plan/program_index.h"
#include "ingot/plan/schedule_simulation.h"

namespace ingot {

class ScheduleRun {
 public:
  // The arguments but the options must outlive the run.
  ScheduleRun(const RankPrograms& job, const Hardware& hardware, const ScheduleOptions& options);

  ScheduleOutcome run();  // once

 private:
  // An operation that at least one rank has started.
  struct Started {
    CommOperation::Kind kind = CommOperation::Kind::kBarrier;
    int queue = 0;
    uint32_t number = 0;             // within its queue
    uint32_t arrived = 0;            // ranks that have started it
    int first_rank = 0, name = 0;    // the first of them, and its name for the operation
    int root = 0;                    // of a broadcast
    uint64_t bytes = 0;              // of the larger tensor
    double ready_s = 0;              // the last start so far
    double begin_s = 0, end_s = -1;  // end_s is -1 until the operation has ended
    double moved_bytes = 0;          // of its transfer
    const Loads* loads = nullptr;
    int flow = -1;  // its number in the fluid network, while it moves bytes
  };

  // Operations that run one after the other: the collectives of a group, or the messages from one of its
  // ranks to another one.
  struct Queue {
    std::vector<int> ranks;       // that start each operation: members, or sender and receiver
    std::vector<int> operations;  // indices, in order
    size_t begun = 0;
    bool is_busy = false;
    double free_s = 0;                // end of the last operation
    uint32_t sent = 0, received = 0;  // messages started
    std::optional<GroupRoute> group;  // made at the first operation of several ranks
    std::optional<MessageRoute> message;
  };

  struct RankState {
    const RankProgram* program = nullptr;
    const ProgramIndex* index = nullptr;
    size_t next = 0;  // operation of the program
    double now_s = 0;
    std::vector<uint32_t> started;  // collectives, by the rank's groups
    std::vector<int> operation_of;  // by ticket
    bool is_waiting = false;
    RankTimeline* timeline = nullptr;
    std::vector<int> span_operations;  // of the timeline's spans; -1 for other tracks
  };

  struct Event {
    double time_s;
    uint64_t order;  // equal times keep the order in which events were made
    int operation;
    uint32_t version;  // of the flow's rate, if is_end and the operation has a flow
    bool is_end;       // the operation ends, or its latency is over and its bytes begin to move
    bool operator<(const Event& other) const {
      return std::pair(time_s, order) > std::pair(other.time_s, other.order);
    }
  };

  RankState& at(int rank) { return ranks_[static_cast<size_t>(rank)]; }
  Started& operation(int index) { return started_[static_cast<size_t>(index)]; }
  Queue& queue(int index) { return queues_[static_cast<size_t>(index)]; }
  const std::string& name_of(const Started& op) {
    return at(op.first_rank).program->names[static_cast<size_t>(op.name)];
  }
  void push(double time_s, int operation, uint32_t version, bool is_end) {
    events_.push({time_s, events_made_++, operation, version, is_end});
  }

  void check_groups() const;
  void prepare(int rank);
  void run_rank(int rank);
  bool wait(int rank, const ProgramOp& op);
  void end_wait(int rank, const ProgramOp& op, const Started& waited);
  void expose(const Started& waited, double from_s);
  void start(int rank, const ProgramOp& op);
  int message_queue(int group, int from, int to);
  void check_equal(const Started& op, int rank, const ProgramOp& other);
  void begin_next(Queue& queue);
  void handle(const Event& event);
  void end(int index, double now_s);
  std::string missing(const Started& op);
  void check_done();
  void finish();

  const RankPrograms& job_;
  const Network network_;
  FluidNetwork fluid_;
  std::vector<RankState> ranks_;
  std::map<const RankProgram*, ProgramIndex> indices_;
  std::deque<Queue> queues_;                          // first those of the groups' collectives, by group
  std::unordered_map<uint64_t, int> message_queues_;  // by group, sender and receiver
  std::vector<Started> started_;
  std::vector<int> flow_operations_;  // by number of the flow
  std::priority_queue<Event> events_;
  uint64_t events_made_ = 0;
  ScheduleOutcome outcome_;
};

}  // namespace ingot
