#include "ingot/plan/network.h"

#include <algorithm>
#include <cmath>
#include <map>

namespace ingot {

using Kind = CommOperation::Kind;

Cluster::Cluster(const Hardware& hardware, int ranks)
    : hardware_(hardware),
      ranks_(ranks),
      nodes_((ranks + hardware.devices_per_node - 1) / hardware.devices_per_node) {
  bytes_per_s_.assign(static_cast<size_t>(ranks), hardware.link_gb_s * 1e9);
  bytes_per_s_.resize(bytes_per_s_.size() + static_cast<size_t>(nodes_ * hardware.nics_per_node),
                      hardware.nic_gb_s * 1e9);
  if (hardware.nodes_per_rack > 0) {
    const int racks = (nodes_ + hardware.nodes_per_rack - 1) / hardware.nodes_per_rack;
    bytes_per_s_.resize(bytes_per_s_.size() + static_cast<size_t>(racks), hardware.rack_gb_s * 1e9);
  }
}

int Cluster::card_of(int rank) const {
  const int place = rank % hardware_.devices_per_node;
  const int card = place * hardware_.nics_per_node / hardware_.devices_per_node;
  return ranks_ + node_of(rank) * hardware_.nics_per_node + card;
}

int Cluster::rack_of(int node) const {
  if (hardware_.nodes_per_rack == 0) return -1;
  return ranks_ + nodes_ * hardware_.nics_per_node + node / hardware_.nodes_per_rack;
}

double Cluster::Cost::alone_s(const Cluster& cluster) const {
  double slowest = 0;
  for (const Traffic& t : traffic) slowest = std::max(slowest, t.bytes / cluster.bytes_per_s(t.link));
  return latency_s + slowest;
}

Cluster::Cost Cluster::message(uint64_t bytes, int from, int to) const {
  const auto size = static_cast<double>(bytes);
  const bool is_near = node_of(from) == node_of(to);
  Cost cost{.latency_s = 1e-6 * (hardware_.collective_us + (is_near ? hardware_.link_us : hardware_.nic_us)),
            .traffic = {}};
  for (const int rank : {from, to}) cost.traffic.push_back({is_near ? port_of(rank) : card_of(rank), size});
  const int out = rack_of(node_of(from)), in = rack_of(node_of(to));
  if (!is_near && out != in)
    for (const int rack : {out, in}) cost.traffic.push_back({rack, size});
  return cost;
}

Cluster::Cost Cluster::cost(Kind kind, uint64_t bytes, const std::vector<int>& members, int from,
                            int to) const {
  const auto n = static_cast<double>(members.size());
  if (members.size() == 1) return {};
  if (kind == Kind::kSend || kind == Kind::kReceive)
    return message(bytes, members[static_cast<size_t>(from)], members[static_cast<size_t>(to)]);

  std::map<int, std::vector<int>> cards_of_node, racks;  // node -> its cards; rack -> its nodes
  for (const int rank : members) {
    std::vector<int>& cards = cards_of_node[node_of(rank)];
    if (std::ranges::find(cards, card_of(rank)) == cards.end()) cards.push_back(card_of(rank));
  }
  const auto k = static_cast<double>(cards_of_node.size());
  const double near_s = hardware_.link_us * 1e-6, far_s = hardware_.nic_us * 1e-6;
  const auto size = static_cast<double>(bytes);
  double steps_s = (n - k) * near_s + (k > 1 ? k - 1 : 0) * far_s;  // once around the ring
  double moved = size * (n - 1) / n;
  const auto finish = [&](double latency_s, double carried) {
    Cost cost{.latency_s = latency_s + hardware_.collective_us * 1e-6, .traffic = {}};
    if (n > k)
      for (const int rank : members) cost.traffic.push_back({port_of(rank), carried});
    if (k == 1) return cost;
    for (const auto& [node, cards] : cards_of_node) {
      for (const int card : cards)
        cost.traffic.push_back({card, carried / static_cast<double>(cards.size())});
      if (rack_of(node) >= 0) racks[rack_of(node)].push_back(node);
    }
    if (racks.size() > 1)
      for (const auto& [rack, nodes] : racks) cost.traffic.push_back({rack, carried});
    return cost;
  };
  switch (kind) {
    case Kind::kAllReduce: {
      const double per_node = n / k;
      const double tree_s = 2 * ((per_node - 1) * near_s + std::ceil(std::log2(k)) * far_s);
      const Cost ring = finish(2 * steps_s, 2 * moved);
      if (k == 1) return ring;
      racks.clear();
      const Cost tree = finish(tree_s, 2 * size);
      return ring.alone_s(*this) <= tree.alone_s(*this) ? ring : tree;
    }
    case Kind::kAllToAll:
      return finish(k > 1 ? far_s : near_s, moved);
    case Kind::kBroadcast:
      return finish(steps_s, size);
    case Kind::kBarrier:
      return finish(2 * ((n / k - 1) * near_s + std::ceil(std::log2(k)) * far_s), 0);
    default:
      return finish(steps_s, moved);
  }
}

}  // namespace ingot
