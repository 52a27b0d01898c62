#include "ingot/plan/schedule_simulation.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <limits>
#include <queue>
#include <tuple>
#include <unordered_map>

#include "ingot/core/error.h"

namespace ingot {
namespace {

using Kind = CommOperation::Kind;
constexpr double kNever = std::numeric_limits<double>::infinity();

bool is_message(Kind kind) { return kind == Kind::kSend || kind == Kind::kReceive; }

// The operations of one order: the collectives of a group, or the messages from one rank to another.
struct Channel {
  std::vector<int> ranks;   // that start each operation
  std::deque<int> waiting;  // instances that have not begun, oldest first
  int64_t first = 0;        // number of waiting.front()
  double free_s = 0;        // when the last one ended
  bool is_busy = false;
  std::unordered_map<int, int64_t> started;  // rank -> how many it has started
};

// An operation under way.
struct Instance {
  int channel = 0;
  Kind kind = Kind::kBarrier;
  uint64_t bytes = 0;
  std::vector<std::tuple<int, uint32_t, int>> starters;  // rank, ticket, name
  double ready_s = 0, begin_s = 0;
  const Cluster::Cost* cost = nullptr;
  bool moves = false;  // its bytes are on the links
  double left = 1;     // fraction of the bytes
  double rate = 0;     // fraction per second
  double updated_s = 0;
  uint32_t version = 0;
};

struct Event {
  double time_s;
  uint64_t number;  // orders events of one time
  int instance;
  uint32_t version;
  bool operator>(const Event& other) const {
    return std::tie(time_s, number) > std::tie(other.time_s, other.number);
  }
};

struct Rank {
  const RankProgram* program = nullptr;
  const std::vector<size_t>* starts = nullptr;  // by ticket: index of its start
  size_t next = 0;
  double now_s = 0;
  int64_t waits_for = -1;       // ticket
  std::vector<double> ended_s;  // by ticket; infinity while under way
  RankOutcome outcome;
  std::vector<TimelineRow>* timeline = nullptr;
};

class Simulation {
 public:
  Simulation(const RankPrograms& job, const Hardware& hardware, const std::vector<int>& timelines_of)
      : job_(job),
        hardware_(hardware),
        cluster_(hardware, static_cast<int>(job.programs.size())),
        ranks_(job.programs.size()),
        moving_(static_cast<size_t>(cluster_.links())) {
    for (const std::vector<int>& members : job.members) {
      channels_.emplace_back();
      channels_.back().ranks = members;
    }
    for (size_t r = 0; r < ranks_.size(); ++r) {
      ranks_[r].program = job.programs[r].get();
      const auto [at, is_new] = starts_.try_emplace(ranks_[r].program);
      if (is_new) at->second = starts_of(*ranks_[r].program);
      ranks_[r].starts = &at->second;
      ranks_[r].ended_s.assign(at->second.size(), kNever);
    }
    for (const int r : timelines_of) rank(r).timeline = &outcome_.timelines[r];
  }

  ScheduleOutcome run() {
    for (int r = 0; r < static_cast<int>(ranks_.size()); ++r) advance(r);
    while (!events_.empty()) {
      const Event event = events_.top();
      events_.pop();
      Instance& instance = instances_[static_cast<size_t>(event.instance)];
      if (event.version != instance.version) continue;
      if (instance.moves)
        end(event.instance, event.time_s);
      else
        move(event.instance, event.time_s);
    }
    check_ended();
    for (Rank& r : ranks_) {
      outcome_.step_s = std::max(outcome_.step_s, r.now_s);
      r.outcome.end_s = r.now_s;
      outcome_.ranks.push_back(std::move(r.outcome));
    }
    return std::move(outcome_);
  }

 private:
  // Returns the index of each ticket's start.
  static std::vector<size_t> starts_of(const RankProgram& program) {
    std::vector<size_t> starts;
    for (size_t i = 0; i < program.ops.size(); ++i) {
      const ProgramOp& op = program.ops[i];
      INGOT_CHECK(op.kind != ProgramOp::Kind::kWait || op.ticket < starts.size(),
                  "schedule: ticket {} is waited for before its start", op.ticket);
      if (op.kind != ProgramOp::Kind::kStart) continue;
      INGOT_CHECK(op.ticket == starts.size(), "schedule: ticket {} follows ticket {}", op.ticket,
                  starts.size());
      starts.push_back(i);
    }
    return starts;
  }
  Rank& rank(int r) { return ranks_[static_cast<size_t>(r)]; }
  const std::string& name_of(int r, int name) { return rank(r).program->names[static_cast<size_t>(name)]; }

  // Runs a rank until it waits.
  void advance(int r) {
    Rank& own = rank(r);
    own.waits_for = -1;
    for (; own.next < own.program->ops.size(); ++own.next) {
      const ProgramOp& op = own.program->ops[own.next];
      switch (op.kind) {
        case ProgramOp::Kind::kCompute:
          note(own, TimelineRow::Kind::kCompute, op.name, own.now_s, own.now_s + op.seconds);
          own.now_s += op.seconds;
          own.outcome.busy_s += op.seconds;
          break;
        case ProgramOp::Kind::kStart:
          start(r, op);
          break;
        case ProgramOp::Kind::kWait: {
          const double ended_s = own.ended_s[op.ticket];
          if (ended_s == kNever) {
            own.waits_for = op.ticket;
            return;
          }
          if (ended_s > own.now_s) {
            own.outcome.waited_s += ended_s - own.now_s;
            own.outcome.waited_by_group[start_of_ticket(own, op.ticket).group] += ended_s - own.now_s;
            note(own, TimelineRow::Kind::kWait, start_of_ticket(own, op.ticket).name, own.now_s, ended_s);
            own.now_s = ended_s;
          }
          break;
        }
      }
    }
  }

  static void note(Rank& own, TimelineRow::Kind kind, int name, double begin_s, double end_s) {
    if (own.timeline && end_s > begin_s)
      own.timeline->push_back({.kind = kind,
                               .name = own.program->names[static_cast<size_t>(name)],
                               .group = {},
                               .begin_s = begin_s,
                               .end_s = end_s});
  }

  static const ProgramOp& start_of_ticket(const Rank& own, int64_t ticket) {
    return own.program->ops[(*own.starts)[static_cast<size_t>(ticket)]];
  }

  int channel_of(int r, const ProgramOp& op) {
    const int group = job_.groups[static_cast<size_t>(r)][static_cast<size_t>(op.group)];
    if (!is_message(op.operation)) return group;
    const int peer = job_.members[static_cast<size_t>(group)][static_cast<size_t>(op.peer)];
    const auto [from, to] = op.operation == Kind::kSend ? std::pair(r, peer) : std::pair(peer, r);
    const auto [at, is_new] = messages_.try_emplace({group, from, to}, static_cast<int>(channels_.size()));
    if (is_new) {
      channels_.emplace_back();
      channels_.back().ranks = {from, to};
    }
    return at->second;
  }

  void start(int r, const ProgramOp& op) {
    const int c = channel_of(r, op);
    Channel& channel = channels_[static_cast<size_t>(c)];
    const int64_t number = channel.started[r]++;
    while (channel.first + std::ssize(channel.waiting) <= number)
      channel.waiting.push_back(new_instance(c, op));
    const int i = channel.waiting[static_cast<size_t>(number - channel.first)];
    Instance& instance = instances_[static_cast<size_t>(i)];
    const Kind kind = op.operation == Kind::kReceive ? Kind::kSend : op.operation;
    if (instance.kind != kind || instance.bytes != op.bytes) {
      const auto [other, ticket, name] = instance.starters.front();
      fail(ErrorKind::kInternal,
           "schedule: rank {} starts {} '{}' of {} bytes, rank {} starts {} '{}' of {} bytes", r,
           kind_name(op.operation), name_of(r, op.name), op.bytes, other, kind_name(instance.kind),
           name_of(other, name), instance.bytes);
    }
    instance.starters.emplace_back(r, op.ticket, op.name);
    instance.ready_s = std::max(instance.ready_s, rank(r).now_s);
    try_begin(channel);
  }

  int new_instance(int c, const ProgramOp& op) {
    int i = 0;
    if (free_.empty()) {
      i = static_cast<int>(instances_.size());
      instances_.emplace_back();
    } else {
      i = free_.back();
      free_.pop_back();
    }
    Instance& instance = instances_[static_cast<size_t>(i)];
    const uint32_t version = instance.version + 1;  // no event of an earlier use applies
    instance = Instance();
    instance.channel = c;
    instance.kind = op.operation == Kind::kReceive ? Kind::kSend : op.operation;
    instance.bytes = op.bytes;
    instance.version = version;
    return i;
  }

  // Begins the channel's oldest operation once all its ranks have started it.
  void try_begin(Channel& channel) {
    if (channel.is_busy || channel.waiting.empty()) return;
    const int i = channel.waiting.front();
    Instance& instance = instances_[static_cast<size_t>(i)];
    if (instance.starters.size() < channel.ranks.size()) return;
    channel.waiting.pop_front();
    ++channel.first;
    channel.is_busy = true;
    instance.begin_s = std::max(instance.ready_s, channel.free_s);
    instance.cost = &cost_of(instance);
    push(instance.begin_s + instance.cost->latency_s, i);
  }

  const Cluster::Cost& cost_of(const Instance& instance) {
    const auto [at, is_new] =
        costs_.try_emplace({instance.channel, static_cast<int>(instance.kind), instance.bytes});
    if (is_new)
      at->second = cluster_.cost(instance.kind, instance.bytes,
                                 channels_[static_cast<size_t>(instance.channel)].ranks, 0, 1);
    return at->second;
  }

  void push(double time_s, int i) {
    events_.push({time_s, number_++, i, instances_[static_cast<size_t>(i)].version});
  }

  // Puts the operation's bytes on its links.
  void move(int i, double now_s) {
    Instance& instance = instances_[static_cast<size_t>(i)];
    instance.moves = true;
    instance.left = 1;
    instance.updated_s = now_s;
    for (const Cluster::Traffic& t : instance.cost->traffic)
      moving_[static_cast<size_t>(t.link)].push_back(i);
    share_links(i, now_s);
  }

  // Sets the rates of the operation and of those that share a link with it.
  void share_links(int i, double now_s) {
    touched_.clear();
    touched_.push_back(i);
    for (const Cluster::Traffic& t : instances_[static_cast<size_t>(i)].cost->traffic)
      for (const int other : moving_[static_cast<size_t>(t.link)])
        if (other != i) touched_.push_back(other);
    std::ranges::sort(touched_);
    touched_.erase(std::unique(touched_.begin(), touched_.end()), touched_.end());
    for (const int other : touched_)
      if (instances_[static_cast<size_t>(other)].moves) set_rate(other, now_s);
  }

  void set_rate(int i, double now_s) {
    Instance& instance = instances_[static_cast<size_t>(i)];
    instance.left -= instance.rate * (now_s - instance.updated_s);
    instance.updated_s = now_s;
    double whole_s = 0;  // the time of all its bytes at today's shares
    for (const Cluster::Traffic& t : instance.cost->traffic)
      whole_s = std::max(whole_s, t.bytes / cluster_.bytes_per_s(t.link) *
                                      static_cast<double>(moving_[static_cast<size_t>(t.link)].size()));
    instance.rate = whole_s > 0 ? 1 / whole_s : 0;
    ++instance.version;
    const double least_s = instance.begin_s + hardware_.shortest_us * 1e-6;
    push(std::max(least_s, now_s + std::max(0.0, instance.left) * whole_s), i);
  }

  void end(int i, double now_s) {
    Instance& instance = instances_[static_cast<size_t>(i)];
    instance.moves = false;
    ++instance.version;
    for (const Cluster::Traffic& t : instance.cost->traffic)
      std::erase(moving_[static_cast<size_t>(t.link)], i);
    share_links(i, now_s);
    Channel& channel = channels_[static_cast<size_t>(instance.channel)];
    channel.is_busy = false;
    channel.free_s = now_s;
    ++outcome_.operations;
    const auto starters = std::move(instance.starters);
    const double begin_s = instance.begin_s;
    free_.push_back(i);
    try_begin(channel);
    for (const auto& [r, ticket, name] : starters) {
      Rank& own = rank(r);
      own.ended_s[ticket] = now_s;
      own.outcome.operated_s += now_s - begin_s;
      note(own, TimelineRow::Kind::kOperation, name, begin_s, now_s);
    }
    for (const auto& [r, ticket, name] : starters)
      if (rank(r).waits_for == ticket) advance(r);
  }

  void check_ended() {
    std::string waiting;
    int count = 0;
    for (int r = 0; r < static_cast<int>(ranks_.size()); ++r) {
      const Rank& own = rank(r);
      if (own.next == own.program->ops.size() || ++count > 8) continue;
      const ProgramOp& op = start_of_ticket(own, own.waits_for);
      waiting += fmt::format("; rank {}: {} '{}'", r, kind_name(op.operation), name_of(r, op.name));
    }
    INGOT_CHECK(count == 0, "schedule: {} ranks wait for each other{}", count, waiting);
  }

  const RankPrograms& job_;
  const Hardware& hardware_;
  Cluster cluster_;
  std::vector<Rank> ranks_;
  std::deque<Channel> channels_;  // the groups, then the pairs of ranks that exchange messages
  std::map<std::tuple<int, int, int>, int> messages_;
  std::unordered_map<const RankProgram*, std::vector<size_t>> starts_;
  std::vector<Instance> instances_;
  std::vector<int> free_;
  std::map<std::tuple<int, int, uint64_t>, Cluster::Cost> costs_;
  std::vector<std::vector<int>> moving_;  // per link
  std::vector<int> touched_;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  uint64_t number_ = 0;
  ScheduleOutcome outcome_;
};

}  // namespace

ScheduleOutcome simulate_schedule(const RankPrograms& job, const Hardware& hardware,
                                  const std::vector<int>& timelines_of) {
  return Simulation(job, hardware, timelines_of).run();
}

}  // namespace ingot
