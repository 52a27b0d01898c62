// The network of a cluster, and what an operation of a group costs on it.
//
// Resources are the links that operations share, each way separately: every device's link inside its node,
// every NIC, and every rack's uplink. World ranks fill devices, nodes and racks in order. An operation first
// waits for its latency and then moves bytes at one rate through all resources that it loads. The time of a
// lone operation is therefore latency + max over resources of bytes * weight / capacity.
//
// With n ranks on m nodes, a tensor of S bytes, and step latencies a (node) and b (network):
//   ring   all_reduce moves 2 (n-1)/n S over each link of the ring in 2 (n-1) steps; all_gather and
//          reduce_scatter half of both (Patarasuk & Yuan 2009, doi:10.1016/j.jpdc.2008.09.002). 2 (m-1) steps
//          cross nodes.
//   tree   all_reduce only: chains inside the nodes and two binary trees between them, each for half of the
//          tensor (Sanders, Speck & Traeff 2009, doi:10.1016/j.parco.2009.09.001). Each rank sends 2 S;
//          the latency is 2 ((n/m - 1) a + log2(m) b).
//   Each node's traffic to others is spread over the NICs of its members, as NCCL's channels do.
// As NCCL's tuner does (NCCL 2.30, src/graph/tuning.cc), the fastest pair of algorithm and protocol is taken:
// ll and ll128 have short steps and use 1/2 and 0.92 of the bandwidth, trees use 0.92 of it.
//
// broadcast is a pipelined ring: every link moves S. all_to_all sends S/n from each rank to every other one.
// A barrier is an all_reduce of no bytes. A message loads the links between its two ranks.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "ingot/comm/communicator.h"
#include "ingot/plan/hardware.h"

namespace ingot {

struct Load {
  int resource = 0;
  double weight = 0;  // bytes through the resource per byte of the transfer
};
using Loads = std::vector<Load>;  // sorted by resource, each at most once

struct Transfer {
  const char* algorithm = "";  // "ring", "tree", "pairs" or "message"
  Protocol protocol = Protocol::kSimple;
  double latency_s = 0;
  double bytes = 0;              // through a resource of weight 1
  const Loads* loads = nullptr;  // of the route that made the transfer
};

class Network {
 public:
  // Throws a kUsage error if ranks < 1.
  Network(const Hardware& hardware, int ranks);

  const Hardware& hardware() const { return hardware_; }
  int ranks() const { return ranks_; }
  int node(int rank) const { return rank / hardware_.node.devices; }
  int rack(int rank) const { return node(rank) / hardware_.network.nodes_per_rack; }
  // Bytes per second of each resource; infinite for uplinks that never limit.
  std::span<const double> capacities() const { return capacities_; }

  // Adds a path's weight on every resource from one rank to another one.
  void add_path(Loads& loads, int from, int to, double weight) const;
  // Adds a weight on a rank's NIC, out and in.
  void add_nic(Loads& loads, int rank, double weight) const;
  // Adds a weight on a rack's uplink, out and in.
  void add_uplink(Loads& loads, int rack, double weight) const;

 private:
  enum class Way { kOut, kIn };
  int link(int rank, Way way) const { return 2 * rank + (way == Way::kIn); }
  int nic(int rank, Way way) const;
  int uplink(int rack, Way way) const;

  Hardware hardware_;
  int ranks_;
  std::vector<double> capacities_;
};

// The placement of a group of at least two ranks: which resources its collectives load, and how fast they
// are. The network must outlive it.
class GroupRoute {
 public:
  GroupRoute(const Network& network, std::vector<int> members);

  // kind: any but kSend and kReceive. bytes: of the larger tensor. The result is valid as long as the route.
  Transfer transfer(CommOperation::Kind kind, uint64_t bytes) const;

 private:
  struct NodeMembers {
    int node;
    std::vector<int> ranks;  // ascending
  };
  void load_ring();
  void load_pairs();
  Transfer fastest(CommOperation::Kind kind, double bytes) const;

  const Network* network_;
  int size_;
  std::vector<NodeMembers> nodes_;  // ascending
  int racks_ = 1;
  Loads ring_, pairs_;
  double ring_bytes_per_s_ = 0;
};

// The route of messages from one rank to another one.
class MessageRoute {
 public:
  MessageRoute(const Network& network, int from, int to);
  Transfer transfer(uint64_t bytes) const;

 private:
  double latency_s_;
  Loads loads_;
};

}  // namespace ingot
