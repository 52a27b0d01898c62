#include "tests/simulated_ranks/simulated_communicator.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <optional>
#include <utility>

#include "ingot/comm/rank_order.h"
#include "tests/simulated_ranks/simulated_files.h"
#include "tests/simulated_ranks/simulated_group.h"
#include "tests/simulated_ranks/verdict.h"

namespace ingot::simulated {
namespace {

using Kind = CommOperation::Kind;

constexpr uint64_t kMessageTicket = uint64_t{1} << 63, kSkippedTicket = uint64_t{1} << 62;
constexpr double kCall_s = 2e-6;       // the time of a call
constexpr double kMaxWork_s = 4e-4;    // a rank computes at most so long before an operation
constexpr double kMaxDelay_s = 2e-4;   // of an operation, usually
constexpr double kLongDelay_s = 0.05;  // of one in a hundred

double duration_s(const Network& network, const Transfer& transfer) {
  double seconds = transfer.latency_s;
  if (transfer.loads)
    for (const Load& load : *transfer.loads)
      seconds = std::max(seconds,
                         transfer.latency_s + transfer.bytes * load.weight /
                                                  network.capacities()[static_cast<size_t>(load.resource)]);
  return seconds;
}

double delay_s(Random& random) {
  return random.chance(0.01) ? random.between(0, kLongDelay_s) : random.between(0, kMaxDelay_s);
}

std::byte* bytes_of(const Tensor& t) { return static_cast<std::byte*>(t.data); }

bool overlap(const Tensor& a, const Tensor& b) {
  return bytes_of(a) < bytes_of(b) + b.bytes() && bytes_of(b) < bytes_of(a) + a.bytes();
}

class SimulatedCommunicator : public Communicator {
 public:
  SimulatedCommunicator(Cluster& cluster, Group& group, int index)
      : Communicator(group.name, index, static_cast<int>(group.members.size())),
        cluster_(cluster),
        group_(group),
        world_rank_(group.members[static_cast<size_t>(index)]) {}

  std::unique_ptr<Communicator> split(int color, int key, std::string name) override {
    const uint64_t number = splits_++;
    auto& all = group_.splits[number];
    all.resize(static_cast<size_t>(size()), {-1, -1});
    all[static_cast<size_t>(rank())] = {color, key};
    barrier("split");
    std::vector<std::pair<int, int>> chosen;  // key and rank
    for (int r = 0; r < size(); ++r)
      if (all[static_cast<size_t>(r)].first == color)
        chosen.emplace_back(all[static_cast<size_t>(r)].second, r);
    std::ranges::sort(chosen);
    std::vector<int> members;
    int index = 0;
    for (const auto& [unused, r] : chosen) {
      if (r == rank()) index = static_cast<int>(members.size());
      members.push_back(group_.members[static_cast<size_t>(r)]);
    }
    Group& made = cluster_.group(fmt::format("{}/{}.{}", group_.key, number, color), name, members);
    return std::make_unique<SimulatedCommunicator>(cluster_, made, index);
  }
  TimeLimit& time_limit() override { return cluster_.time_limit(world_rank_); }

 private:
  bool is_last() const { return world_rank_ == cluster_.ranks() - 1; }

  uint64_t start(const CommOperation& o) override {
    Scheduler& scheduler = cluster_.scheduler();
    scheduler.advance(kCall_s + cluster_.random().between(0, kMaxWork_s));
    scheduler.note(o.name);
    cluster_.called(world_rank_);
    if (o.kind == Kind::kSend || o.kind == Kind::kReceive) return start_message(o);
    if (is_skipped(o)) return kSkippedTicket;
    const uint64_t number = started_++;
    Collective& c = group_.collectives[number];
    if (c.ranks.empty()) {
      c.ranks.resize(static_cast<size_t>(size()));
      c.name = o.name;
      c.is_eager = cluster_.random().chance(0.5);
    }
    Started& own = c.ranks[static_cast<size_t>(rank())];
    own = {o, Scheduler::current()};
    own.what.name = {};
    check_signature(c, o);
    poison(o);
    c.arrived_s = std::max(c.arrived_s, scheduler.now_s());
    if (++c.arrived < size()) return number;
    c.done_s = std::max(c.arrived_s, group_.last_done_s);
    if (size() > 1) {
      const uint64_t bytes = std::max(o.in.bytes(), o.out.bytes());
      c.done_s +=
          duration_s(cluster_.network(), group_.route->transfer(o.kind, bytes)) + delay_s(cluster_.random());
    }
    group_.last_done_s = c.done_s;
    if (c.is_eager || size() == 1) execute(number, c);
    for (const Started& started : c.ranks) cluster_.scheduler().wake(*started.task, c.done_s);
    return number;
  }

  bool is_done(uint64_t ticket) override {
    cluster_.scheduler().pass(kCall_s);
    if (ticket == kSkippedTicket) return true;
    const double now_s = cluster_.scheduler().now_s();
    if (ticket & kMessageTicket) {
      const Message& m = *messages_[ticket & ~kMessageTicket];
      return m.is_matched && m.done_s <= now_s;
    }
    const auto found = group_.collectives.find(ticket);
    if (found == group_.collectives.end()) return true;
    if (found->second.arrived != size() || found->second.done_s > now_s) return false;
    execute(ticket, found->second);
    return true;
  }

  void wait(uint64_t ticket) override {
    if (ticket == kSkippedTicket) return;
    if (ticket & kMessageTicket) return wait_for_message(ticket);
    Collective& c = group_.collectives[ticket];
    if (cluster_.bug() == Bug::kWaitIsSkipped && world_rank_ == 1 && size() > 1 &&
        own_operation(c).out.dtype == DType::f32)
      return;
    wait_until(fmt::format("{}: in {} '{}' (number {})", name(), kind_name(own_operation(c).kind), c.name,
                           ticket + 1),
               [&] { return c.arrived == size() ? std::optional(c.done_s) : std::nullopt; });
    execute(ticket, c);
    if (++c.waited == size()) group_.collectives.erase(ticket);
  }

  const CommOperation& own_operation(const Collective& c) const {
    return c.ranks[static_cast<size_t>(rank())].what;
  }

  // done_s: returns when the operation is done; nullopt if that is not known yet.
  template <typename F>
  void wait_until(const std::string& what, F&& done_s) {
    Scheduler& scheduler = cluster_.scheduler();
    Task& task = *Scheduler::current();
    task.waits_for = what;
    task.waits_since_s = scheduler.now_s();
    while (true) {
      const std::optional<double> end_s = done_s();
      if (end_s && *end_s <= scheduler.now_s()) break;
      if (end_s)
        scheduler.pass(*end_s - scheduler.now_s());
      else
        scheduler.block();
    }
    task.waits_for.clear();
  }

  void check_signature(const Collective& c, const CommOperation& o) const {
    for (int r = 0; r < size(); ++r) {
      const Started& other = c.ranks[static_cast<size_t>(r)];
      if (!other.task) continue;
      const CommOperation& their = other.what;
      if (c.name != o.name || their.kind != o.kind || their.in.bytes() != o.in.bytes() ||
          (o.kind == Kind::kBroadcast && their.peer != o.peer))
        end_seed("operations differ",
                 fmt::format("group {}: rank {} of the group calls {} '{}' of {} bytes, rank {} calls {} "
                             "'{}' of {} bytes",
                             name(), r, kind_name(their.kind), c.name, their.in.bytes(), rank(),
                             kind_name(o.kind), o.name, o.in.bytes()));
    }
  }

  // Fills what the operation will write.
  void poison(const CommOperation& o) const {
    if (size() == 1 || cluster_.bug() == Bug::kWaitIsSkipped) return;
    const bool writes_other = o.kind == Kind::kAllToAll || o.kind == Kind::kReduceScatter;
    if (o.kind == Kind::kReceive || (writes_other && !overlap(o.out, o.in)))
      std::memset(o.out.data, 0xff, o.out.bytes());
    if (o.kind != Kind::kAllGather) return;
    for (int r = 0; r < size(); ++r) {
      std::byte* place = bytes_of(o.out) + static_cast<size_t>(r) * o.in.bytes();
      if (place != bytes_of(o.in)) std::memset(place, 0xff, o.in.bytes());
    }
  }

  void execute(uint64_t number, Collective& c) {
    if (c.is_executed) return;
    for (auto& [earlier, other] : group_.collectives)
      if (earlier < number && other.arrived == size()) execute(earlier, other);
    c.is_executed = true;
    const CommOperation& first = c.ranks[0].what;
    if (first.kind == Kind::kBarrier || first.in.bytes() == 0) return;
    std::vector<std::byte> inputs;
    for (const Started& s : c.ranks)
      inputs.insert(inputs.end(), bytes_of(s.what.in), bytes_of(s.what.in) + s.what.in.bytes());
    for (int r = 0; r < size(); ++r) write_output(c, r, inputs);
  }

  void write_output(Collective& c, int r, const std::vector<std::byte>& inputs) {
    const CommOperation& o = c.ranks[static_cast<size_t>(r)].what;
    const size_t in_bytes = o.in.bytes(), slice = in_bytes / static_cast<size_t>(size());
    int summed = size();
    if (cluster_.bug() == Bug::kLastRankIsNotSummed && o.in.dtype == DType::f32 && o.op == ReduceOp::kSum &&
        group_.members.back() == cluster_.ranks() - 1)
      summed = std::max(1, size() - 1);
    std::byte* out = bytes_of(o.out);
    switch (o.kind) {
      case Kind::kAllReduce:
        if (has_own_signal(o, r)) break;
        reduce_in_rank_order(out, o.out.dtype, inputs.data(), o.in.dtype, summed, o.in.elements(), o.op);
        break;
      case Kind::kAllGather:
        std::memcpy(out, inputs.data(), inputs.size());
        break;
      case Kind::kBroadcast:
        std::memcpy(out, inputs.data() + static_cast<size_t>(o.peer) * in_bytes, in_bytes);
        if (cluster_.bug() == Bug::kOlderView && c.name == "text") take_older_view(o.out, r);
        break;
      default: {
        std::vector<std::byte> slices;
        for (int from = 0; from < size(); ++from) {
          const std::byte* begin =
              inputs.data() + static_cast<size_t>(from) * in_bytes + static_cast<size_t>(r) * slice;
          slices.insert(slices.end(), begin, begin + slice);
        }
        if (o.kind == Kind::kAllToAll)
          std::memcpy(out, slices.data(), slices.size());
        else
          reduce_in_rank_order(out, o.out.dtype, slices.data(), o.in.dtype, summed, o.out.elements(), o.op);
      }
    }
  }

  // ---- messages ----

  uint64_t start_message(const CommOperation& o) {
    auto message = std::make_shared<Message>();
    message->what = o;
    message->task = Scheduler::current();
    message->is_send = o.kind == Kind::kSend;
    message->posted_s = cluster_.scheduler().now_s();
    messages_.push_back(message);
    const uint64_t ticket = kMessageTicket | (messages_.size() - 1);
    Group::Pair& pair =
        group_.pairs[message->is_send ? std::pair(rank(), o.peer) : std::pair(o.peer, rank())];
    if (message->is_send) {
      message->is_buffered = cluster_.random().chance(0.5);
      if (message->is_buffered) message->buffer.assign(bytes_of(o.in), bytes_of(o.in) + o.in.bytes());
      if (is_held_back(pair, message)) return ticket;
      pair.sends.push_back(message);
      if (pair.held) pair.sends.push_back(std::exchange(pair.held, nullptr));
    } else {
      poison(o);
      pair.receives.push_back(message);
    }
    match(pair);
    return ticket;
  }

  void match(Group::Pair& pair) {
    while (!pair.sends.empty() && !pair.receives.empty()) {
      Message& send = *pair.sends.front();
      Message& receive = *pair.receives.front();
      const Tensor& in = send.what.in;
      const Tensor& out = receive.what.out;
      if (in.bytes() != out.bytes())
        end_seed("operations differ", fmt::format("group {}: a message of {} bytes is received as {} bytes",
                                                  name(), in.bytes(), out.bytes()));
      std::memcpy(out.data, send.is_buffered ? send.buffer.data() : bytes_of(in), in.bytes());
      const int from = group_.members[static_cast<size_t>(receive.what.peer)];
      const int to = group_.members[static_cast<size_t>(send.what.peer)];
      const MessageRoute route(cluster_.network(), from, to);
      const double done_s = std::max({send.posted_s, receive.posted_s, pair.last_done_s}) +
                            duration_s(cluster_.network(), route.transfer(in.bytes())) +
                            delay_s(cluster_.random());
      pair.last_done_s = done_s;
      for (Message* m : {&send, &receive}) {
        m->is_matched = true;
        m->done_s = done_s;
        cluster_.scheduler().wake(*m->task, done_s);
      }
      pair.sends.pop_front();
      pair.receives.pop_front();
    }
  }

  void wait_for_message(uint64_t ticket) {
    const std::shared_ptr<Message> m = messages_[ticket & ~kMessageTicket];
    if (m->is_buffered) return;
    wait_until(fmt::format("{}: in {} rank {}", name(), kind_name(m->what.kind), m->what.peer),
               [&] { return m->is_matched ? std::optional(m->done_s) : std::nullopt; });
  }

  // ---- planted bugs ----

  // The last rank leaves out the agreement after the ranks have compared what they wrote.
  bool is_skipped(const CommOperation& o) {
    if (cluster_.bug() != Bug::kAgreementIsSkipped || !is_last() || name() != "world") return false;
    const bool is_next = after_hashes_ == 2 && o.name == "max";
    after_hashes_ = o.name == "hashes" ? after_hashes_ + 1 : 0;
    return is_next;
  }

  // Every fourth message comes after the next one.
  bool is_held_back(Group::Pair& pair, const std::shared_ptr<Message>& message) const {
    if (cluster_.bug() != Bug::kMessagesAreSwapped || ++pair.sent % 4 != 0) return false;
    if (!message->is_buffered)
      message->buffer.assign(bytes_of(message->what.in),
                             bytes_of(message->what.in) + message->what.in.bytes());
    message->is_buffered = true;
    pair.held = message;
    return true;
  }

  // The last rank keeps its own answer to the question whether the run was asked to end.
  bool has_own_signal(const CommOperation& o, int r) const {
    return cluster_.bug() == Bug::kOwnSignalCounts && o.op == ReduceOp::kMax && o.in.elements() == 2 &&
           group_.name == "world" && r == size() - 1;
  }

  void take_older_view(const Tensor& out, int r) const {
    const std::filesystem::path path(std::string(static_cast<const char*>(out.data), out.bytes()));
    if (r != size() - 1 || group_.has_resumed || !path.filename().string().starts_with("step-")) return;
    group_.has_resumed = true;
    const std::string older = older_checkpoint(path);
    if (older.size() == out.bytes()) std::memcpy(out.data, older.data(), older.size());
  }

  static std::string older_checkpoint(const std::filesystem::path& path) {
    // These calls go to the system: another rank must not run while an operation is half done.
    SimulatedFiles* files = std::exchange(simulated_files(), nullptr);
    std::string older;
    std::error_code error;
    for (const auto& entry : std::filesystem::directory_iterator(path.parent_path(), error))
      if (entry.path().filename().string().starts_with("step-") && entry.path() < path)
        older = std::max(older, entry.path().string());
    simulated_files() = files;
    return older;
  }

  Cluster& cluster_;
  Group& group_;
  int world_rank_;
  uint64_t started_ = 0, splits_ = 0;
  int after_hashes_ = 0;
  std::vector<std::shared_ptr<Message>> messages_;
};

}  // namespace

Cluster::Cluster(Scheduler& scheduler, uint64_t seed, int ranks, Bug bug, std::function<void(int)> called_in)
    : scheduler_(scheduler),
      random_(seed),
      bug_(bug),
      called_(std::move(called_in)),
      network_(find_hardware("h100-sxm"), ranks) {
  for (int rank = 0; rank < ranks; ++rank) limits_.push_back(std::make_unique<TimeLimit>());
}

Cluster::~Cluster() = default;

Group& Cluster::group(const std::string& key, const std::string& name, const std::vector<int>& members) {
  std::unique_ptr<Group>& group = groups_[key];
  if (!group) {
    group = std::make_unique<Group>();
    group->key = key;
    group->name = name;
    group->members = members;
    if (members.size() > 1) group->route.emplace(network_, members);
  }
  return *group;
}

void Cluster::abandon(int rank) {
  const auto is_own = [&](const auto& operation) { return operation.task && operation.task->rank == rank; };
  const auto is_own_message = [&](const std::shared_ptr<Message>& m) {
    return is_own(*m) && !m->is_buffered;
  };
  for (auto& [key, group] : groups_) {
    for (auto& [number, collective] : group->collectives)
      if (!collective.is_executed && std::ranges::any_of(collective.ranks, is_own))
        collective.arrived = -ranks();
    for (auto& [ends, pair] : group->pairs) {
      std::erase_if(pair.sends, is_own_message);
      std::erase_if(pair.receives, is_own_message);
    }
  }
}

std::unique_ptr<Communicator> Cluster::world(int rank) {
  std::vector<int> all(static_cast<size_t>(ranks()));
  for (int r = 0; r < ranks(); ++r) all[static_cast<size_t>(r)] = r;
  return std::make_unique<SimulatedCommunicator>(*this, group("world", "world", all), rank);
}

}  // namespace ingot::simulated
