// What operations between ranks cost on a cluster: the latency of their steps, and the bytes that they move
// through each link. Rank r has device r of the cluster; devices fill nodes, and nodes fill racks, in order.
//
// With S the bytes of the whole tensor, n ranks on k nodes:
//   ring all_gather, reduce_scatter   n - 1 steps; every link carries S (n - 1) / n
//   ring all_reduce                   2 (n - 1) steps, 2 S (n - 1) / n (Patarasuk & Yuan 2009)
//   tree all_reduce                   2 log2(k) steps between nodes and 2 (n / k - 1) within, 2 S
//                                     (two trees, Sanders et al. 2009; NCCL's tree is a chain within a node)
//   all_to_all, broadcast, messages   one step; S (n - 1) / n, S, S
// The ranks of a node form one ring per network card that they use, so the node's cards share the bytes that
// leave it, as NCCL's rings do. The faster of ring and tree is chosen.
#pragma once

#include <cstdint>
#include <vector>

#include "ingot/comm/communicator.h"
#include "ingot/plan/hardware.h"

namespace ingot {

// Links of a cluster, by number.
class Cluster {
 public:
  Cluster(const Hardware& hardware, int ranks);

  int links() const { return static_cast<int>(bytes_per_s_.size()); }
  double bytes_per_s(int link) const { return bytes_per_s_[static_cast<size_t>(link)]; }

  struct Traffic {
    int link = 0;
    double bytes = 0;
  };
  struct Cost {
    double latency_s = 0;          // until the last byte would arrive if links were infinitely fast
    std::vector<Traffic> traffic;  // a link appears once
    double alone_s(const Cluster& cluster) const;  // duration without other traffic
  };
  // The cost of an operation of a group. members: the world ranks of the group; from, to: positions in it,
  // for messages only.
  Cost cost(CommOperation::Kind kind, uint64_t bytes, const std::vector<int>& members, int from = 0,
            int to = 0) const;

 private:
  int node_of(int rank) const { return rank / hardware_.devices_per_node; }
  int port_of(int rank) const { return rank; }
  int card_of(int rank) const;
  int rack_of(int node) const;  // -1 without racks
  Cost message(uint64_t bytes, int from, int to) const;

  const Hardware& hardware_;
  int ranks_, nodes_;
  std::vector<double> bytes_per_s_;  // ports of devices, network cards, racks
};

}  // namespace ingot
