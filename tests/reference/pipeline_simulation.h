// Runs the lists of pipeline_schedule.h in a simulated communicator, to find whether they finish, when, and
// how much memory they hold. A receive waits for its message; a send does not wait, but its memory is in
// use until the message was received (real transports may buffer more, never less). Activations from one
// rank to another arrive in the order in which they were sent, and so do gradients.
#pragma once

#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

#include "ingot/core/error.h"
#include "ingot/parallel/pipeline_schedule.h"

namespace ingot {

struct PipelineCosts {
  std::vector<double> forward_s, backward_s;  // per stage
  double message_s = 0;
};

struct PipelineOutcome {
  double step_s = 0;               // until the last rank is done
  std::vector<double> busy_s;      // per rank: time in forward and backward
  std::vector<int64_t> in_flight;  // per rank: the most micro-batches (of a chunk) held at once
  // Fraction of the step that is neither, averaged over the ranks.
  double bubble() const;
};

namespace pipeline_simulation {

using Kind = PipelineOp::Kind;

inline const char* name(Kind kind) {
  switch (kind) {
    case Kind::kReceiveActivation:
      return "receive activation";
    case Kind::kForward:
      return "forward";
    case Kind::kSendActivation:
      return "send activation";
    case Kind::kReceiveGradient:
      return "receive gradient";
    case Kind::kBackward:
      return "backward";
    case Kind::kSendGradient:
      return "send gradient";
  }
  return "";
}

// The state of one micro-batch on one stage.
struct Cell {
  bool has_activation = false, has_gradient = false;  // received
  double gradient_s = 0;                              // when the gradient was received
  bool has_run_forward = false, has_run_backward = false;
};

// Messages from one rank to the next or the previous one; they arrive in the order in which they were sent.
struct Channel {
  struct Message {
    int stage;  // the sender
    int64_t micro;
    double sent_s;
  };
  std::vector<Message> sent;
  size_t received = 0;
};

struct Rank {
  size_t next = 0;  // index of the next operation
  double now_s = 0, busy_s = 0;
  int64_t in_flight = 0, most_in_flight = 0;
  std::vector<int64_t> forwards, backwards;  // passes done, per chunk
  std::vector<int64_t> memories;             // number of micro-batches that fit, per chunk
  Channel activations, gradients;            // channels on which this rank sends
};

class Simulation {
 public:
  Simulation(const PipelineShape& shape, const std::vector<std::vector<PipelineOp>>& lists,
             const PipelineCosts& costs)
      : shape_(shape),
        lists_(lists),
        costs_(costs),
        ranks_(static_cast<size_t>(shape.ranks)),
        cells_(static_cast<size_t>(shape.stages() * shape.micros)) {
    const auto stages = static_cast<size_t>(shape.stages());
    INGOT_CHECK(lists.size() == ranks_.size() && costs.forward_s.size() == stages &&
                    costs.backward_s.size() == stages,
                "simulate_pipeline: lists of {} ranks and costs of {} stages, wanted {} and {}", lists.size(),
                costs.forward_s.size(), ranks_.size(), stages);
    for (size_t r = 0; r < ranks_.size(); ++r) {
      ranks_[r].forwards.resize(static_cast<size_t>(shape.chunks));
      ranks_[r].backwards.resize(static_cast<size_t>(shape.chunks));
      ranks_[r].memories = micros_in_flight(lists[r], shape.chunks);
    }
  }

  PipelineOutcome run() {
    for (bool has_moved = true; has_moved;) {
      has_moved = false;
      for (int r = 0; r < shape_.ranks; ++r)
        while (at(r).next < list(r).size() && try_op(r, list(r)[at(r).next])) {
          ++at(r).next;
          has_moved = true;
        }
    }
    check_done();
    PipelineOutcome outcome;
    for (const Rank& rank : ranks_) {
      outcome.step_s = std::max(outcome.step_s, rank.now_s);
      outcome.busy_s.push_back(rank.busy_s);
      outcome.in_flight.push_back(rank.most_in_flight);
    }
    return outcome;
  }

 private:
  Rank& at(int r) { return ranks_[static_cast<size_t>(r)]; }
  const std::vector<PipelineOp>& list(int r) const { return lists_[static_cast<size_t>(r)]; }
  Cell& cell(int stage, int64_t micro) { return cells_[static_cast<size_t>(stage * shape_.micros + micro)]; }

  // Returns false if the operation must wait for another rank.
  bool try_op(int r, const PipelineOp& op) {
    const int stage = op.chunk * shape_.ranks + r;
    switch (op.kind) {
      case Kind::kReceiveActivation:
        return take_memory(r, stage, op) && receive(r, at((stage - 1) % shape_.ranks).activations, stage - 1,
                                                    op.micro, cell(stage, op.micro).has_activation);
      case Kind::kReceiveGradient:
        if (!receive(r, at((stage + 1) % shape_.ranks).gradients, stage + 1, op.micro,
                     cell(stage, op.micro).has_gradient))
          return false;
        cell(stage, op.micro).gradient_s = at(r).now_s;
        return true;
      case Kind::kForward:
        return forward(r, stage, op);
      case Kind::kBackward:
        return backward(r, stage, op);
      case Kind::kSendActivation:
        INGOT_CHECK(cell(stage, op.micro).has_run_forward, "pipeline: rank {} sends what it has not", r);
        at(r).activations.sent.push_back({stage, op.micro, at(r).now_s});
        return true;
      case Kind::kSendGradient:
        INGOT_CHECK(cell(stage, op.micro).has_run_backward, "pipeline: rank {} sends what it has not", r);
        at(r).gradients.sent.push_back({stage, op.micro, at(r).now_s});
        return true;
    }
    return false;
  }

  // Reuses the memory of an earlier micro-batch once the previous stage has received the gradient sent from
  // it.
  bool take_memory(int r, int stage, const PipelineOp& op) {
    const int64_t earlier = op.micro - at(r).memories[static_cast<size_t>(op.chunk)];
    if (earlier < 0) return true;
    if (!cell(stage - 1, earlier).has_gradient) return false;
    at(r).now_s = std::max(at(r).now_s, cell(stage - 1, earlier).gradient_s);
    return true;
  }

  bool receive(int r, Channel& channel, int from_stage, int64_t micro, bool& has_received) {
    if (channel.received == channel.sent.size()) return false;
    const Channel::Message& message = channel.sent[channel.received++];
    INGOT_CHECK(message.stage == from_stage && message.micro == micro,
                "pipeline: rank {} wants micro-batch {} of stage {}, micro-batch {} of stage {} arrives", r,
                micro, from_stage, message.micro, message.stage);
    at(r).now_s = std::max(at(r).now_s, message.sent_s + costs_.message_s);
    has_received = true;
    return true;
  }

  bool forward(int r, int stage, const PipelineOp& op) {
    Rank& rank = at(r);
    Cell& own = cell(stage, op.micro);
    int64_t& done = rank.forwards[static_cast<size_t>(op.chunk)];
    INGOT_CHECK(op.micro == done, "pipeline: rank {} goes forward with micro-batch {} after {}", r, op.micro,
                done - 1);
    INGOT_CHECK(stage == 0 || own.has_activation,
                "pipeline: rank {} goes forward with what it has not received", r);
    ++done;
    own.has_run_forward = true;
    spend(rank, costs_.forward_s[static_cast<size_t>(stage)]);
    rank.most_in_flight = std::max(rank.most_in_flight, ++rank.in_flight);
    INGOT_CHECK(rank.in_flight <= allowed_in_flight(r),
                "pipeline: rank {} keeps {} micro-batches, at most {}", r, rank.in_flight,
                allowed_in_flight(r));
    return true;
  }

  // The most micro-batches (interleaved: chunks of micro-batches) whose activations rank r may hold at once.
  int64_t allowed_in_flight(int r) const {
    const int64_t passes = shape_.micros * shape_.chunks, behind = shape_.ranks - 1 - r;
    if (shape_.kind == PipelineKind::kGpipe) return passes;
    if (shape_.chunks == 1) return std::min(passes, behind + 1);
    return std::min(passes, 2 * behind + static_cast<int64_t>(shape_.chunks - 1) * shape_.ranks + 1);
  }

  bool backward(int r, int stage, const PipelineOp& op) {
    Rank& rank = at(r);
    Cell& own = cell(stage, op.micro);
    int64_t& done = rank.backwards[static_cast<size_t>(op.chunk)];
    INGOT_CHECK(op.micro == done && own.has_run_forward,
                "pipeline: rank {} goes backward with micro-batch {} after {}", r, op.micro, done - 1);
    INGOT_CHECK(stage + 1 == shape_.stages() || own.has_gradient,
                "pipeline: rank {} goes backward with what it has not received", r);
    ++done;
    own.has_run_backward = true;
    spend(rank, costs_.backward_s[static_cast<size_t>(stage)]);
    --rank.in_flight;
    return true;
  }

  static void spend(Rank& rank, double cost_s) {
    rank.now_s += cost_s;
    rank.busy_s += cost_s;
  }

  void check_done() {
    std::string waiting;
    for (int r = 0; r < shape_.ranks; ++r) {
      if (at(r).next == list(r).size()) {
        for (size_t c = 0; c < at(r).forwards.size(); ++c)
          INGOT_CHECK(at(r).forwards[c] == shape_.micros && at(r).backwards[c] == shape_.micros,
                      "pipeline: rank {} runs chunk {} forward {} times and backward {} times, wanted {}", r,
                      c, at(r).forwards[c], at(r).backwards[c], shape_.micros);
        continue;
      }
      const PipelineOp& op = list(r)[at(r).next];
      waiting +=
          fmt::format("; rank {}: {} of micro-batch {}, chunk {}", r, name(op.kind), op.micro, op.chunk);
    }
    INGOT_CHECK(waiting.empty(), "pipeline: ranks wait for each other{}", waiting);
  }

  const PipelineShape& shape_;
  const std::vector<std::vector<PipelineOp>>& lists_;
  const PipelineCosts& costs_;
  std::vector<Rank> ranks_;
  std::vector<Cell> cells_;  // (stages, micros)
};

}  // namespace pipeline_simulation

inline double PipelineOutcome::bubble() const {
  const double busy = std::accumulate(busy_s.begin(), busy_s.end(), 0.0);
  return 1 - busy / (step_s * static_cast<double>(busy_s.size()));
}

// lists: one per rank. Throws a kInternal error if the ranks wait for each other forever (it names each
// rank's operation), or if a rank runs forward or backward out of order, twice, without its input or not at
// all, or holds more than shape.in_flight.
inline PipelineOutcome simulate_pipeline(const PipelineShape& shape,
                                         const std::vector<std::vector<PipelineOp>>& lists,
                                         const PipelineCosts& costs) {
  return pipeline_simulation::Simulation(shape, lists, costs).run();
}

}  // namespace ingot
