// Random programs against a naive evaluation, which knows neither events nor shared links: it repeats passes
// over the ranks until every time is known, with the same duration for an operation whatever else runs.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <random>
#include <utility>
#include <vector>

#include "ingot/plan/network.h"
#include "ingot/plan/schedule_simulation.h"
#include "tests/plan/jobs.h"

namespace ingot {
namespace {

using plan_test::Operation;
using plan_test::Writer;

struct RandomOperation {
  int group;
  Operation kind;
  uint64_t bytes;
  int from = 0, to = 0;  // ranks of the group, for messages
};

struct RandomJob {
  RankPrograms job;
  std::vector<RandomOperation> operations;
  // Per rank: what it does, in order. compute_s < 0: start or wait for operations[index].
  struct Action {
    double compute_s;
    size_t index;
    bool is_wait;
  };
  std::vector<std::vector<Action>> actions;
};

bool is_message(Operation kind) { return kind == Operation::kSend; }

std::vector<int> ranks_of(const RandomJob& random, const RandomOperation& op) {
  const std::vector<int>& members = random.job.members[static_cast<size_t>(op.group)];
  if (!is_message(op.kind)) return members;
  return {members[static_cast<size_t>(op.from)], members[static_cast<size_t>(op.to)]};
}

// Operations are drawn in one global order in which every rank starts those that it takes part in. It waits
// for each after at most three more starts, so no ranks wait for each other forever.
RandomJob random_job(std::mt19937& random, int ranks, uint64_t most_bytes) {
  const auto pick = [&](int low, int high) { return std::uniform_int_distribution<int>(low, high)(random); };
  RandomJob out;
  std::vector<std::vector<std::pair<int, int>>> local;  // by rank: group, local index
  out.job.groups.resize(static_cast<size_t>(ranks));
  for (int g = 0; g < 5; ++g) {
    std::vector<int> members;
    for (int r = 0; r < ranks; ++r)
      if (g == 0 || pick(0, 2) == 0) members.push_back(r);
    if (members.size() < 2) members = {0, ranks - 1};
    for (const int r : members) out.job.groups[static_cast<size_t>(r)].push_back(g);
    out.job.members.push_back(members);
  }
  constexpr Operation kKinds[] = {Operation::kAllReduce, Operation::kAllGather, Operation::kReduceScatter,
                                  Operation::kAllToAll,  Operation::kBroadcast, Operation::kSend,
                                  Operation::kSend};
  std::vector<Writer> writers(static_cast<size_t>(ranks));
  std::vector<std::vector<std::pair<uint32_t, size_t>>> open(static_cast<size_t>(ranks));
  out.actions.resize(static_cast<size_t>(ranks));
  const auto wait_oldest = [&](size_t r) {
    writers[r].wait(open[r].front().first);
    out.actions[r].push_back({-1, open[r].front().second, true});
    open[r].erase(open[r].begin());
  };
  for (size_t i = 0; i < 60; ++i) {
    RandomOperation op{.group = pick(0, 4), .kind = kKinds[pick(0, 6)], .bytes = 0};
    const std::vector<int>& members = out.job.members[static_cast<size_t>(op.group)];
    const int n = static_cast<int>(members.size());
    if (most_bytes > 0) op.bytes = std::uniform_int_distribution<uint64_t>(0, most_bytes)(random);
    op.from = pick(0, n - 1);
    op.to = (op.from + pick(1, n - 1)) % n;
    out.operations.push_back(op);
    for (const int rank : ranks_of(out, op)) {
      const auto r = static_cast<size_t>(rank);
      const double compute_s = pick(0, 1000) * 1e-5;
      writers[r].compute(compute_s);
      out.actions[r].push_back({compute_s, 0, false});
      const auto& groups = out.job.groups[r];
      const int group = static_cast<int>(std::ranges::find(groups, op.group) - groups.begin());
      const bool is_sender = rank == members[static_cast<size_t>(op.from)];
      const Operation kind = !is_message(op.kind) || is_sender ? op.kind : Operation::kReceive;
      const int peer = !is_message(op.kind) ? 0 : is_sender ? op.to : op.from;
      open[r].emplace_back(writers[r].start(kind, group, op.bytes, "operation", peer), i);
      out.actions[r].push_back({-1, i, false});
      while (open[r].size() > static_cast<size_t>(pick(0, 3))) wait_oldest(r);
    }
  }
  for (size_t r = 0; r < writers.size(); ++r) {
    while (!open[r].empty()) wait_oldest(r);
    out.job.programs.push_back(writers[r].take());
  }
  return out;
}

// Returns when the last rank is done if operation i takes duration_s(i).
double naive_step_s(const RandomJob& random, const std::function<double(size_t)>& duration_s) {
  const size_t count = random.operations.size(), ranks = random.actions.size();
  std::vector<std::map<size_t, double>> starts(count);  // by rank
  std::vector<double> ends(count, -1);
  std::vector<size_t> before(count, count);  // the operation that must end first
  std::map<std::vector<int>, size_t> last;
  for (size_t i = 0; i < count; ++i) {
    const RandomOperation& op = random.operations[i];
    const std::vector<int> key =
        is_message(op.kind) ? std::vector<int>{op.group, op.from, op.to} : std::vector<int>{op.group};
    if (last.contains(key)) before[i] = last[key];
    last[key] = i;
  }
  std::vector<size_t> next(ranks);
  std::vector<double> now_s(ranks);
  for (bool has_moved = true; has_moved;) {
    has_moved = false;
    for (size_t r = 0; r < ranks; ++r)
      for (; next[r] < random.actions[r].size(); ++next[r], has_moved = true) {
        const RandomJob::Action& action = random.actions[r][next[r]];
        if (action.compute_s >= 0) {
          now_s[r] += action.compute_s;
        } else if (!action.is_wait) {
          starts[action.index][r] = now_s[r];
        } else {
          if (ends[action.index] < 0) break;
          now_s[r] = std::max(now_s[r], ends[action.index]);
        }
      }
    for (size_t i = 0; i < count; ++i) {
      if (ends[i] >= 0 || starts[i].size() < ranks_of(random, random.operations[i]).size()) continue;
      if (before[i] < count && ends[before[i]] < 0) continue;
      double begin_s = before[i] < count ? ends[before[i]] : 0;
      for (const auto& [rank, start_s] : starts[i]) begin_s = std::max(begin_s, start_s);
      ends[i] = begin_s + duration_s(i);
      has_moved = true;
    }
  }
  for (size_t r = 0; r < ranks; ++r) EXPECT_EQ(next[r], random.actions[r].size());
  return *std::ranges::max_element(now_s);
}

struct Lone {
  double latency_s, moving_s;
  double bytes_out;  // through all links, NICs and uplinks together
};

Lone lone(const RandomJob& random, const Network& network, size_t i) {
  const RandomOperation& op = random.operations[i];
  const std::vector<int> ranks = ranks_of(random, op);
  const MessageRoute message(network, ranks[0], ranks[1]);
  const GroupRoute group(network, random.job.members[static_cast<size_t>(op.group)]);
  const Transfer transfer =
      is_message(op.kind) ? message.transfer(op.bytes) : group.transfer(op.kind, op.bytes);
  Lone result{transfer.latency_s, 0, 0};
  for (const Load& load : *transfer.loads) {
    const double capacity = network.capacities()[static_cast<size_t>(load.resource)];
    result.moving_s = std::max(result.moving_s, transfer.bytes * load.weight / capacity);
    result.bytes_out += transfer.bytes * load.weight;
  }
  return result;
}

// The same job with contention, evaluated naively: at every moment at which anything can change, all ranks
// and operations are looked at, and the rates of all transfers are computed anew.
class NaiveContention {
 public:
  NaiveContention(const RandomJob& random, const Network& network) : random_(random), network_(network) {
    std::map<std::vector<int>, size_t> last;
    for (size_t i = 0; i < random.operations.size(); ++i) {
      const RandomOperation& op = random.operations[i];
      const std::vector<int> ranks = ranks_of(random, op);
      const MessageRoute message(network, ranks[0], ranks[1]);
      const GroupRoute group(network, random.job.members[static_cast<size_t>(op.group)]);
      const Transfer transfer =
          is_message(op.kind) ? message.transfer(op.bytes) : group.transfer(op.kind, op.bytes);
      const std::vector<int> key =
          is_message(op.kind) ? std::vector<int>{op.group, op.from, op.to} : std::vector<int>{op.group};
      operations_.push_back({.loads = *transfer.loads,
                             .latency_s = transfer.latency_s,
                             .bytes = transfer.bytes,
                             .before = last.contains(key) ? static_cast<int>(last[key]) : -1,
                             .missing = ranks.size()});
      last[key] = i;
    }
  }

  double step_s() {
    std::vector<size_t> next(random_.actions.size());
    std::vector<double> free_s(next.size());
    for (;;) {
      for (size_t r = 0; r < next.size(); ++r)
        for (; next[r] < random_.actions[r].size() && free_s[r] <= now_s_; ++next[r]) {
          const RandomJob::Action& action = random_.actions[r][next[r]];
          if (action.is_wait && !operations_[action.index].is_done) break;
          if (action.compute_s >= 0) free_s[r] = now_s_ + action.compute_s;
          if (action.compute_s < 0 && !action.is_wait) --operations_[action.index].missing;
        }
      bool has_ended = false;
      for (NaiveOperation& op : operations_) {
        if (op.is_done) continue;
        const bool is_next = op.before < 0 || operations_[static_cast<size_t>(op.before)].is_done;
        if (op.missing == 0 && is_next && op.moves_at_s < 0) op.moves_at_s = now_s_ + op.latency_s;
        if (op.moves_at_s < 0 || op.moves_at_s > now_s_ || op.bytes > 0) continue;
        op.is_done = has_ended = true;
      }
      if (has_ended) continue;  // ranks continue at the same moment
      set_rates();
      double until_s = 1e9;
      for (const double time_s : free_s)
        if (time_s > now_s_) until_s = std::min(until_s, time_s);
      for (const NaiveOperation& op : operations_) {
        if (op.moves_at_s > now_s_) until_s = std::min(until_s, op.moves_at_s);
        if (op.rate > 0) until_s = std::min(until_s, now_s_ + op.bytes / op.rate);
      }
      if (until_s == 1e9) return *std::ranges::max_element(free_s);
      for (NaiveOperation& op : operations_)
        if (op.rate > 0) op.bytes -= op.rate * (until_s - now_s_);
      // Bytes that are left after a transfer's end come from rounding.
      for (NaiveOperation& op : operations_)
        if (op.rate > 0 && op.bytes < op.rate * 1e-12) op.bytes = 0;
      now_s_ = until_s;
      for (double& time_s : free_s)
        if (time_s < now_s_) time_s = now_s_;
    }
  }

 private:
  struct NaiveOperation {
    Loads loads;
    double latency_s, bytes;
    int before;
    size_t missing;
    double moves_at_s = -1, rate = 0;
    bool is_done = false;
  };

  void set_rates() {
    std::vector<NaiveOperation*> free;
    std::vector<double> left(network_.capacities().begin(), network_.capacities().end());
    for (NaiveOperation& op : operations_) {
      op.rate = 0;
      if (!op.is_done && op.moves_at_s >= 0 && op.moves_at_s <= now_s_) free.push_back(&op);
    }
    while (!free.empty()) {
      std::vector<double> weights(left.size());
      for (const NaiveOperation* op : free)
        for (const Load& load : op->loads) weights[static_cast<size_t>(load.resource)] += load.weight;
      size_t tightest = 0;
      double level = 1e30;
      for (size_t r = 0; r < left.size(); ++r)
        if (weights[r] > 0 && left[r] / weights[r] < level) {
          level = left[r] / weights[r];
          tightest = r;
        }
      std::erase_if(free, [&](NaiveOperation* op) {
        if (std::ranges::find(op->loads, static_cast<int>(tightest), &Load::resource) == op->loads.end())
          return false;
        op->rate = level;
        for (const Load& load : op->loads) left[static_cast<size_t>(load.resource)] -= load.weight * level;
        return true;
      });
    }
  }

  const RandomJob& random_;
  const Network& network_;
  std::vector<NaiveOperation> operations_;
  double now_s_ = 0;
};

TEST(ScheduleRandom, WithContentionTheStepIsTheNaiveOne) {
  std::mt19937 random(4);
  for (int i = 0; i < 60; ++i) {
    const RandomJob job = random_job(random, 9 + i % 30, 1 << 28);
    Hardware hardware = find_hardware(i % 2 == 0 ? "h100-sxm" : "a100-80g");
    hardware.network.nics = 1 + i % 3;
    hardware.network.nodes_per_rack = 1 + i % 2;
    if (i % 4 == 0) hardware.network.rack_uplink_bytes_per_s = 30e9;
    if (i % 5 == 0) hardware.node.topology = Hardware::Topology::kRing;
    const Network network(hardware, static_cast<int>(job.actions.size()));
    const double wanted_s = NaiveContention(job, network).step_s();
    ASSERT_NEAR(simulate_schedule(job.job, hardware).step_s, wanted_s, 1e-7 * wanted_s) << i;
  }
}

TEST(ScheduleRandom, WithoutBytesTheStepIsTheNaiveOne) {
  std::mt19937 random(1);
  for (int i = 0; i < 100; ++i) {
    const RandomJob job = random_job(random, 3 + i % 20, 0);
    const Hardware hardware = find_hardware("h100-sxm");
    const Network network(hardware, static_cast<int>(job.actions.size()));
    const double wanted_s = naive_step_s(job, [&](size_t op) { return lone(job, network, op).latency_s; });
    ASSERT_NEAR(simulate_schedule(job.job, hardware).step_s, wanted_s, 1e-9 * wanted_s) << i;
  }
}

TEST(ScheduleRandom, TheStepLiesBetweenNoContentionAndOneOperationAtATime) {
  std::mt19937 random(2);
  int contended = 0;
  for (int i = 0; i < 100; ++i) {
    const RandomJob job = random_job(random, 9 + i % 20, 1 << 30);
    Hardware hardware = find_hardware("h100-sxm");
    hardware.network.nics = 1 + i % 8;
    const Network network(hardware, static_cast<int>(job.actions.size()));
    const double least_s = naive_step_s(job, [&](size_t op) {
      const Lone costs = lone(job, network, op);
      return costs.latency_s + costs.moving_s;
    });
    double most_s = 0;  // all computation and all operations, one after the other
    for (size_t op = 0; op < job.operations.size(); ++op) {
      const Lone costs = lone(job, network, op);
      most_s += costs.latency_s + costs.moving_s;
    }
    const ScheduleOutcome outcome = simulate_schedule(job.job, hardware);
    for (const RankOutcome& rank : outcome.ranks) most_s += rank.busy_s;
    ASSERT_GE(outcome.step_s, least_s * (1 - 1e-9)) << i;
    ASSERT_LE(outcome.step_s, most_s * (1 + 1e-9)) << i;
    contended += outcome.step_s > least_s * 1.01;
    for (const RankOutcome& rank : outcome.ranks)
      ASSERT_NEAR(rank.busy_s + rank.exposed_s + rank.idle_s, outcome.step_s, 1e-9);
    for (const KindOutcome& kind : outcome.kinds) ASSERT_GE(kind.ran_s - kind.exposed_s, -1e-9);
  }
  EXPECT_GT(contended, 20);  // the cases do test contention
}

// All bytes must pass the links: each resource needs at least its bytes over its capacity.
TEST(ScheduleRandom, NoLinkCarriesMoreThanItsCapacity) {
  std::mt19937 random(3);
  for (int i = 0; i < 50; ++i) {
    const RandomJob job = random_job(random, 16, uint64_t{1} << 33);
    Hardware hardware = find_hardware("a100-80g");
    hardware.network.nics = 2;
    const Network network(hardware, 16);
    std::vector<double> bytes(network.capacities().size());
    uint64_t sizes = 0;
    for (const RandomOperation& op : job.operations) {
      const std::vector<int> ranks = ranks_of(job, op);
      const MessageRoute message(network, ranks[0], ranks[1]);
      const GroupRoute group(network, job.job.members[static_cast<size_t>(op.group)]);
      const Transfer transfer =
          is_message(op.kind) ? message.transfer(op.bytes) : group.transfer(op.kind, op.bytes);
      for (const Load& load : *transfer.loads)
        bytes[static_cast<size_t>(load.resource)] += transfer.bytes * load.weight;
      sizes += op.bytes;
    }
    const ScheduleOutcome outcome = simulate_schedule(job.job, hardware);
    for (size_t r = 0; r < bytes.size(); ++r)
      ASSERT_GE(outcome.step_s * (1 + 1e-9), bytes[r] / network.capacities()[r]);
    uint64_t counted = 0;
    for (const KindOutcome& kind : outcome.kinds) counted += kind.bytes;
    ASSERT_EQ(counted, sizes);
  }
}

}  // namespace
}  // namespace ingot
