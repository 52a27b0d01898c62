#include "ingot/plan/network.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <utility>

#include "ingot/core/error.h"

namespace ingot {
namespace {

using Operation = CommOperation::Kind;

// Fractions of the bandwidth that the protocols and trees use (NCCL 2.30, src/graph/tuning.cc).
constexpr std::array<double, kProtocols> kRingFraction = {1, 0.92, 0.5};
constexpr std::array<double, kProtocols> kTreeFraction = {0.92, 0.92 * 120 / 128, 0.92 / 3.8};

// Sorts by resource and adds up the weights of each.
void merge(Loads& loads) {
  std::ranges::sort(loads, {}, &Load::resource);
  size_t kept = 0;
  for (const Load& load : loads) {
    if (kept > 0 && loads[kept - 1].resource == load.resource)
      loads[kept - 1].weight += load.weight;
    else
      loads[kept++] = load;
  }
  loads.resize(kept);
}

double lone_bytes_per_s(std::span<const double> capacities, const Loads& loads) {
  double rate = std::numeric_limits<double>::infinity();
  for (const Load& load : loads)
    rate = std::min(rate, capacities[static_cast<size_t>(load.resource)] / load.weight);
  return rate;
}

// Steps of a ring, and bytes over each of its links per byte of the tensor.
struct RingPlan {
  int passes;  // times around the ring
  double bytes_per_byte;
};

RingPlan ring_plan(Operation kind, int n) {
  const double part = static_cast<double>(n - 1) / n;
  switch (kind) {
    case Operation::kAllReduce:
    case Operation::kBarrier:
      return {2, 2 * part};
    case Operation::kBroadcast:
      return {1, 1};
    default:
      return {1, part};
  }
}

}  // namespace

Network::Network(const Hardware& hardware, int ranks) : hardware_(hardware), ranks_(ranks) {
  if (ranks < 1) fail(ErrorKind::kUsage, "a job has at least 1 rank, got {}", ranks);
  const auto& node = hardware.node;
  const auto& network = hardware.network;
  // A device of a ring splits its links between its two neighbours.
  const double link =
      node.link_bytes_per_s * node.link_fraction / (node.topology == Hardware::Topology::kRing ? 2 : 1);
  const auto pairs_of = [](int count) { return 2 * static_cast<size_t>(count); };
  capacities_.assign(pairs_of(ranks), link);
  capacities_.resize(capacities_.size() + pairs_of((this->node(ranks - 1) + 1) * network.nics),
                     network.nic_bytes_per_s * network.nic_fraction);
  const double uplink = network.rack_uplink_bytes_per_s;
  capacities_.resize(capacities_.size() + pairs_of(rack(ranks - 1) + 1),
                     uplink > 0 ? uplink : std::numeric_limits<double>::infinity());
}

int Network::nic(int rank, Way way) const {
  const int devices = hardware_.node.devices, nics = hardware_.network.nics;
  const int number = node(rank) * nics + rank % devices * nics / devices;
  return 2 * (ranks_ + number) + (way == Way::kIn);
}

int Network::uplink(int rack, Way way) const {
  const int nics = (node(ranks_ - 1) + 1) * hardware_.network.nics;
  return 2 * (ranks_ + nics + rack) + (way == Way::kIn);
}

void Network::add_nic(Loads& loads, int rank, double weight) const {
  loads.push_back({nic(rank, Way::kOut), weight});
  loads.push_back({nic(rank, Way::kIn), weight});
}

void Network::add_uplink(Loads& loads, int rack, double weight) const {
  if (hardware_.network.rack_uplink_bytes_per_s == 0) return;
  loads.push_back({uplink(rack, Way::kOut), weight});
  loads.push_back({uplink(rack, Way::kIn), weight});
}

void Network::add_path(Loads& loads, int from, int to, double weight) const {
  if (from == to) return;
  if (node(from) != node(to)) {
    loads.push_back({nic(from, Way::kOut), weight});
    loads.push_back({nic(to, Way::kIn), weight});
    if (rack(from) == rack(to) || hardware_.network.rack_uplink_bytes_per_s == 0) return;
    loads.push_back({uplink(rack(from), Way::kOut), weight});
    loads.push_back({uplink(rack(to), Way::kIn), weight});
    return;
  }
  if (hardware_.node.topology == Hardware::Topology::kSwitch) {
    loads.push_back({link(from, Way::kOut), weight});
    loads.push_back({link(to, Way::kIn), weight});
    return;
  }
  // A ring has one link from each device to the next and one to the previous; "out" stands for the first,
  // "in" for the second. A path takes the shorter way around.
  const int devices = hardware_.node.devices, first = node(from) * devices;
  const int ahead = (to - from + devices) % devices;
  const Way way = 2 * ahead <= devices ? Way::kOut : Way::kIn;
  for (int at = from; at != to;) {
    loads.push_back({link(at, way), weight});
    at = first + (at - first + (way == Way::kOut ? 1 : devices - 1)) % devices;
    if (at >= ranks_) at = way == Way::kOut ? first : ranks_ - 1;  // a last node that is not full
  }
}

GroupRoute::GroupRoute(const Network& network, std::vector<int> members)
    : network_(&network), size_(static_cast<int>(members.size())) {
  INGOT_CHECK(size_ > 1, "GroupRoute: wanted at least two ranks, got {}", size_);
  std::ranges::sort(members);
  for (const int rank : members) {
    if (nodes_.empty() || nodes_.back().node != network.node(rank))
      nodes_.push_back({network.node(rank), {}});
    nodes_.back().ranks.push_back(rank);
  }
  for (size_t i = 1; i < nodes_.size(); ++i)
    racks_ += network.rack(nodes_[i].ranks[0]) != network.rack(nodes_[i - 1].ranks[0]);
  load_ring();
  load_pairs();
  ring_bytes_per_s_ = lone_bytes_per_s(network.capacities(), ring_);
}

void GroupRoute::load_ring() {
  for (const NodeMembers& node : nodes_) {
    const auto k = static_cast<int>(node.ranks.size());
    // Several nodes: each channel enters and leaves at another member, and crosses k - 1 of the node's k
    // edges.
    const double edge = nodes_.size() > 1 ? static_cast<double>(k - 1) / k : 1.0;
    for (int i = 0; i < k && k > 1; ++i)
      network_->add_path(ring_, node.ranks[static_cast<size_t>(i)],
                         node.ranks[static_cast<size_t>((i + 1) % k)], edge);
    if (nodes_.size() == 1) continue;
    for (const int rank : node.ranks) network_->add_nic(ring_, rank, 1.0 / k);
  }
  for (size_t i = 0; i < nodes_.size() && racks_ > 1; ++i) {
    const int rack = network_->rack(nodes_[i].ranks[0]);
    if (i == 0 || rack != network_->rack(nodes_[i - 1].ranks[0])) network_->add_uplink(ring_, rack, 1);
  }
  merge(ring_);
}

// Weights are relative to the bytes that one rank sends.
void GroupRoute::load_pairs() {
  const double peer = 1.0 / (size_ - 1);
  std::vector<std::pair<int, int>> rack_members;  // rack, members
  for (const NodeMembers& node : nodes_) {
    const auto k = static_cast<int>(node.ranks.size());
    for (const int from : node.ranks)
      for (const int to : node.ranks) network_->add_path(pairs_, from, to, peer);
    if (nodes_.size() > 1)
      for (const int rank : node.ranks) network_->add_nic(pairs_, rank, (size_ - k) * peer);
    const int rack = network_->rack(node.ranks[0]);
    if (rack_members.empty() || rack_members.back().first != rack) rack_members.emplace_back(rack, 0);
    rack_members.back().second += k;
  }
  if (racks_ > 1)
    for (const auto& [rack, k] : rack_members) network_->add_uplink(pairs_, rack, k * (size_ - k) * peer);
  merge(pairs_);
}

Transfer GroupRoute::transfer(Operation kind, uint64_t bytes) const {
  INGOT_CHECK(kind != Operation::kSend && kind != Operation::kReceive, "GroupRoute: {} is a message",
              kind_name(kind));
  const auto size = static_cast<double>(kind == Operation::kBarrier ? 0 : bytes);
  if (kind != Operation::kAllToAll) return fastest(kind, size);
  const Hardware& hardware = network_->hardware();
  const auto& latency = nodes_.size() > 1 ? hardware.network.ring_latency_s : hardware.node.ring_latency_s;
  return {.algorithm = "pairs",
          .latency_s = hardware.collectives.launch_s[0] + latency[0],
          .bytes = size * (size_ - 1) / size_,
          .loads = &pairs_};
}

Transfer GroupRoute::fastest(Operation kind, double bytes) const {
  const Hardware& hardware = network_->hardware();
  const auto m = static_cast<int>(nodes_.size());
  const RingPlan ring = ring_plan(kind, size_);
  const bool has_tree = kind == Operation::kAllReduce || kind == Operation::kBarrier;
  const double depth = std::ceil(std::log2(m)), chain = std::ceil(static_cast<double>(size_) / m) - 1;
  Transfer best;
  double best_s = std::numeric_limits<double>::infinity();
  const auto consider = [&](const char* algorithm, size_t p, double latency_s, double moved) {
    const double all_s = latency_s + moved / ring_bytes_per_s_;
    if (all_s >= best_s) return;
    best_s = all_s;
    best = {.algorithm = algorithm,
            .protocol = static_cast<Protocol>(p),
            .latency_s = latency_s,
            .bytes = moved,
            .loads = &ring_};
  };
  for (size_t p = 0; p < kProtocols; ++p) {
    const double launch = hardware.collectives.launch_s[p];
    // With one member per node, nothing hides a ring's latency between nodes: NCCL takes the tree's.
    const double across =
        size_ == m ? hardware.network.tree_latency_s[p] : hardware.network.ring_latency_s[p];
    consider("ring", p,
             launch + ring.passes * ((size_ - m) * hardware.node.ring_latency_s[p] + (m - 1) * across),
             bytes * ring.bytes_per_byte / kRingFraction[p]);
    if (has_tree && m > 1)
      consider(
          "tree", p,
          launch + 2 * (chain * hardware.node.tree_latency_s[p] + depth * hardware.network.tree_latency_s[p]),
          bytes * 2 / kTreeFraction[p]);
  }
  return best;
}

MessageRoute::MessageRoute(const Network& network, int from, int to) {
  const Hardware& hardware = network.hardware();
  const bool is_local = network.node(from) == network.node(to);
  latency_s_ = hardware.collectives.launch_s[0] +
               (is_local ? hardware.node.ring_latency_s[0] : hardware.network.ring_latency_s[0]);
  network.add_path(loads_, from, to, 1);
  merge(loads_);
}

Transfer MessageRoute::transfer(uint64_t bytes) const {
  return {
      .algorithm = "message", .latency_s = latency_s_, .bytes = static_cast<double>(bytes), .loads = &loads_};
}

}  // namespace ingot
