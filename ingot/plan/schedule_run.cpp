#include "ingot/plan/schedule_run.h"

#include <algorithm>

#include "ingot/core/error.h"

namespace ingot {
namespace {

using OpKind = ProgramOp::Kind;
using Operation = CommOperation::Kind;

}  // namespace

ScheduleOutcome ScheduleRun::run() {
  for (int r = 0; r < static_cast<int>(ranks_.size()); ++r) run_rank(r);
  while (!events_.empty()) {
    const double now_s = events_.top().time_s;
    while (!events_.empty() && events_.top().time_s == now_s) {
      const Event event = events_.top();
      events_.pop();
      handle(event);
    }
    for (const FluidNetwork::Change& change : fluid_.settle(now_s))
      push(change.end_s, flow_operations_[static_cast<size_t>(change.transfer)], change.version, true);
  }
  check_done();
  finish();
  return std::move(outcome_);
}

// Runs a rank until it must wait. Its clock may be ahead of the events, because what it computes and starts
// until then depends on nothing else.
void ScheduleRun::run_rank(int rank) {
  RankState& state = at(rank);
  const std::vector<ProgramOp>& ops = state.program->ops;
  for (; state.next < ops.size(); ++state.next) {
    const ProgramOp& op = ops[state.next];
    switch (op.kind) {
      case OpKind::kCompute:
        if (state.timeline && op.seconds > 0) {
          state.timeline->spans.push_back(
              {.name = op.name, .begin_s = state.now_s, .end_s = state.now_s + op.seconds});
          state.span_operations.push_back(-1);
        }
        state.now_s += op.seconds;
        outcome_.ranks[static_cast<size_t>(rank)].busy_s += op.seconds;
        break;
      case OpKind::kStart:
        start(rank, op);
        break;
      case OpKind::kWait:
        if (!wait(rank, op)) return;
        break;
    }
  }
}

// Returns false if the operation has not ended yet.
bool ScheduleRun::wait(int rank, const ProgramOp& op) {
  RankState& state = at(rank);
  const Started& waited = operation(state.operation_of[op.ticket]);
  state.is_waiting = waited.end_s < 0;
  if (state.is_waiting) return false;
  end_wait(rank, op, waited);
  return true;
}

void ScheduleRun::end_wait(int rank, const ProgramOp& op, const Started& waited) {
  RankState& state = at(rank);
  RankOutcome& outcome = outcome_.ranks[static_cast<size_t>(rank)];
  const int slot = state.index->operation_of[op.ticket];
  WaitOutcome& wait = outcome.waits[static_cast<size_t>(slot)];
  ++wait.waits;
  if (waited.end_s <= state.now_s) return;
  const double ready_s = std::max(state.now_s, waited.ready_s);
  wait.idle_s += ready_s - state.now_s;
  outcome.idle_s += ready_s - state.now_s;
  wait.exposed_s += waited.end_s - ready_s;
  outcome.exposed_s += waited.end_s - ready_s;
  expose(waited, ready_s);
  if (state.timeline) {
    const ProgramIndex::Operation& named = state.index->operations[static_cast<size_t>(slot)];
    state.timeline->spans.push_back({.track = TimelineSpan::Track::kWait,
                                     .name = named.name,
                                     .group = named.group,
                                     .begin_s = state.now_s,
                                     .end_s = waited.end_s});
    state.span_operations.push_back(-1);
  }
  state.now_s = waited.end_s;
}

// Counts the time from from_s, at which the operation was ready, to its end as exposed time of the operations
// that its queue ran then: first those before it, then itself.
void ScheduleRun::expose(const Started& waited, double from_s) {
  const std::vector<int>& operations = queue(waited.queue).operations;
  double to_s = waited.end_s;
  for (size_t n = waited.number + size_t{1}; n-- > 0 && to_s > from_s;) {
    const Started& ran = operation(operations[n]);
    outcome_.kinds[static_cast<size_t>(ran.kind)].exposed_s += to_s - std::max(from_s, ran.begin_s);
    to_s = ran.begin_s;
  }
}

int ScheduleRun::message_queue(int group, int from, int to) {
  const uint64_t ranks = ranks_.size();
  const uint64_t key = (static_cast<uint64_t>(group) * ranks + static_cast<uint64_t>(from)) * ranks +
                       static_cast<uint64_t>(to);
  const auto [found, is_new] = message_queues_.try_emplace(key, static_cast<int>(queues_.size()));
  if (is_new) {
    queues_.emplace_back().ranks = {from, to};
    queues_.back().message.emplace(network_, from, to);
  }
  return found->second;
}

void ScheduleRun::start(int rank, const ProgramOp& op) {
  RankState& state = at(rank);
  const int group = job_.groups[static_cast<size_t>(rank)][static_cast<size_t>(op.group)];
  const bool is_send = op.operation == Operation::kSend,
             is_message = is_send || op.operation == Operation::kReceive;
  int index = group;
  if (is_message || op.operation == Operation::kBroadcast) {
    const std::vector<int>& members = job_.members[static_cast<size_t>(group)];
    INGOT_CHECK(op.peer >= 0 && static_cast<size_t>(op.peer) < members.size(),
                "schedule: rank {}: {} '{}' names rank {} of a group of {}", rank, kind_name(op.operation),
                state.program->names[static_cast<size_t>(op.name)], op.peer, members.size());
    const int peer = members[static_cast<size_t>(op.peer)];
    INGOT_CHECK(!is_message || peer != rank, "schedule: rank {} sends itself a message", rank);
    if (is_message) index = is_send ? message_queue(group, rank, peer) : message_queue(group, peer, rank);
  }
  Queue& queue = this->queue(index);
  uint32_t& count = !is_message ? state.started[static_cast<size_t>(op.group)]
                    : is_send   ? queue.sent
                                : queue.received;
  const uint32_t number = count++;
  if (number == queue.operations.size()) {
    queue.operations.push_back(static_cast<int>(started_.size()));
    started_.push_back({.kind = is_message ? Operation::kSend : op.operation,
                        .queue = index,
                        .number = number,
                        .first_rank = rank,
                        .name = op.name,
                        .root = op.peer,
                        .bytes = op.bytes});
  }
  const int id = queue.operations[number];
  Started& started = operation(id);
  if (started.arrived > 0) check_equal(started, rank, op);
  ++started.arrived;
  started.ready_s = std::max(started.ready_s, state.now_s);
  state.operation_of[op.ticket] = id;
  if (state.timeline) {
    state.timeline->spans.push_back(
        {.track = TimelineSpan::Track::kOperation, .name = op.name, .group = op.group});
    state.span_operations.push_back(id);
  }
  if (started.arrived == queue.ranks.size()) begin_next(queue);
}

void ScheduleRun::check_equal(const Started& op, int rank, const ProgramOp& other) {
  const bool is_message = op.kind == Operation::kSend;
  const bool is_equal = op.bytes == other.bytes && (is_message || op.kind == other.operation) &&
                        (op.kind != Operation::kBroadcast || op.root == other.peer);
  INGOT_CHECK(
      is_equal,
      "schedule: ranks of a group start different operations: rank {} starts {} '{}' of {} bytes, rank {} "
      "starts {} '{}' of {} bytes{}",
      op.first_rank, kind_name(op.kind), name_of(op), op.bytes, rank, kind_name(other.operation),
      at(rank).program->names[static_cast<size_t>(other.name)], other.bytes,
      op.kind == Operation::kBroadcast ? fmt::format(" (roots {} and {})", op.root, other.peer) : "");
}

// Begins the next operation if all its ranks have started it and the one before it has ended.
void ScheduleRun::begin_next(Queue& queue) {
  if (queue.is_busy || queue.begun == queue.operations.size()) return;
  const int id = queue.operations[queue.begun];
  Started& op = operation(id);
  if (op.arrived < queue.ranks.size()) return;
  ++queue.begun;
  op.begin_s = std::max(op.ready_s, queue.free_s);
  KindOutcome& kind = outcome_.kinds[static_cast<size_t>(op.kind)];
  ++kind.operations;
  kind.bytes += op.bytes;
  if (queue.ranks.size() == 1) {
    op.end_s = queue.free_s = op.begin_s;
    return;
  }
  queue.is_busy = true;
  if (!queue.message && !queue.group) queue.group.emplace(network_, queue.ranks);
  const Transfer transfer =
      queue.message ? queue.message->transfer(op.bytes) : queue.group->transfer(op.kind, op.bytes);
  op.moved_bytes = transfer.bytes;
  op.loads = transfer.loads;
  push(op.begin_s + transfer.latency_s, id, 0, transfer.bytes == 0);
}

void ScheduleRun::handle(const Event& event) {
  Started& op = operation(event.operation);
  if (!event.is_end) {
    op.flow = fluid_.join(op.moved_bytes, *op.loads, event.time_s);
    const auto flow = static_cast<size_t>(op.flow);
    if (flow_operations_.size() <= flow) flow_operations_.resize(flow + 1);
    flow_operations_[flow] = event.operation;
    return;
  }
  if (op.end_s >= 0 || (op.flow >= 0 && !fluid_.is_current(op.flow, event.version)))
    return;  // its rate has changed
  end(event.operation, event.time_s);
}

void ScheduleRun::end(int index, double now_s) {
  Started& op = operation(index);
  if (op.flow >= 0) fluid_.leave(op.flow);
  op.flow = -1;
  op.end_s = now_s;
  Queue& queue = this->queue(op.queue);
  outcome_.kinds[static_cast<size_t>(op.kind)].ran_s +=
      (op.end_s - op.begin_s) * static_cast<double>(queue.ranks.size());
  queue.free_s = now_s;
  queue.is_busy = false;
  begin_next(queue);
  for (const int rank : queue.ranks) {
    RankState& state = at(rank);
    if (!state.is_waiting) continue;
    const ProgramOp& wait = state.program->ops[state.next];
    if (state.operation_of[wait.ticket] != index) continue;
    run_rank(rank);  // repeats the wait, which now returns
  }
}

}  // namespace ingot
