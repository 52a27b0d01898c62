#include "ingot/plan/network.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "ingot/core/error.h"
#include "tests/plan/jobs.h"

namespace ingot {
namespace {

using plan_test::Operation;
using plan_test::plain_hardware;

std::vector<int> every(int first, int count, int stride) {
  std::vector<int> ranks;
  for (int i = 0; i < count; ++i) ranks.push_back(first + i * stride);
  return ranks;
}

// The time of an operation that has the network for itself.
double lone_s(const Network& network, const Transfer& transfer) {
  double slowest_s = 0;
  for (const Load& load : *transfer.loads)
    slowest_s = std::max(
        slowest_s, transfer.bytes * load.weight / network.capacities()[static_cast<size_t>(load.resource)]);
  return transfer.latency_s + slowest_s;
}

double collective_s(const Network& network, const std::vector<int>& members, Operation kind, uint64_t bytes) {
  const GroupRoute route(network, members);
  return lone_s(network, route.transfer(kind, bytes));
}

constexpr uint64_t kGib = uint64_t{1} << 30;

TEST(Network, RingsInsideANodeFollowTheFormulas) {
  const Network network(find_hardware("h100-sxm"), 8);
  const double S = kGib, rate = 450e9 * 0.8, launch = 8.4e-6, step = 3.4e-6;
  for (const int n : {2, 3, 8}) {
    const std::vector<int> members = every(0, n, 1);
    EXPECT_NEAR(collective_s(network, members, Operation::kAllReduce, kGib),
                launch + 2 * (n - 1) * (step + S / n / rate), 1e-12);
    EXPECT_NEAR(collective_s(network, members, Operation::kAllGather, kGib),
                launch + (n - 1) * (step + S / n / rate), 1e-12);
    EXPECT_NEAR(collective_s(network, members, Operation::kReduceScatter, kGib),
                launch + (n - 1) * (step + S / n / rate), 1e-12);
    EXPECT_NEAR(collective_s(network, members, Operation::kBroadcast, kGib),
                launch + (n - 1) * step + S / rate, 1e-12);
    EXPECT_NEAR(collective_s(network, members, Operation::kAllToAll, kGib),
                launch + step + S / n * (n - 1) / rate, 1e-12);
  }
}

TEST(Network, AGroupUsesTheNicsOfItsMembers) {
  const Network network(find_hardware("h100-sxm"), 32);
  const double S = kGib, nic = 50e9 * 0.92, launch = 8.4e-6;
  // One device on each of four nodes: one NIC each. A tree between nodes would have less latency, but 0.92 of
  // the bandwidth and twice S instead of 1.5 S.
  EXPECT_NEAR(collective_s(network, every(3, 4, 8), Operation::kAllReduce, kGib),
              launch + 6 * 14e-6 + 1.5 * S / nic, 1e-12);
  // All devices of two nodes: eight NICs per node carry the ring.
  EXPECT_NEAR(collective_s(network, every(0, 16, 1), Operation::kAllReduce, kGib),
              launch + 28 * 3.4e-6 + 2 * 14e-6 + 2 * 15.0 / 16 * S / (8 * nic), 1e-12);
  // Two devices of each of two nodes.
  EXPECT_NEAR(collective_s(network, {0, 1, 8, 9}, Operation::kAllGather, kGib),
              launch + 2 * 3.4e-6 + 14e-6 + 0.75 * S / (2 * nic), 1e-12);
  // Each rank sends 24 of its 32 slices through its NIC.
  EXPECT_NEAR(collective_s(network, every(0, 32, 1), Operation::kAllToAll, kGib),
              launch + 14e-6 + S * 24 / 32 / nic, 1e-12);
}

TEST(Network, SmallOperationsTakeTheTreeAndTheFastProtocol) {
  const Network network(find_hardware("h100-sxm"), 1024);
  const GroupRoute world(network, every(0, 1024, 1));
  const Transfer small = world.transfer(Operation::kAllReduce, 8);
  EXPECT_EQ(std::string(small.algorithm), "tree");
  EXPECT_EQ(small.protocol, Protocol::kLl);
  EXPECT_NEAR(small.latency_s, 6.6e-6 + 2 * (7 * 0.6e-6 + 7 * 5.0e-6), 1e-12);  // 7 = log2(128 nodes)
  EXPECT_EQ(world.transfer(Operation::kBarrier, 0).bytes, 0);
  const Transfer large = world.transfer(Operation::kAllReduce, 64 * kGib);
  EXPECT_EQ(large.protocol, Protocol::kSimple);
  // A tree never wins if bandwidth is all that counts.
  EXPECT_EQ(std::string(large.algorithm), "ring");
  const Transfer gather = world.transfer(Operation::kAllGather, 1024);
  EXPECT_EQ(std::string(gather.algorithm), "ring");
}

TEST(Network, TheFastestChoiceGrowsWithTheSize) {
  const Network network(find_hardware("a100-80g"), 64);
  for (const auto& members : {every(0, 8, 1), every(0, 8, 8), every(0, 64, 1)}) {
    double before_s = 0;
    for (uint64_t bytes = 1; bytes <= kGib; bytes *= 4) {
      const double now_s = collective_s(network, members, Operation::kAllReduce, bytes);
      EXPECT_GE(now_s, before_s);
      before_s = now_s;
    }
  }
}

TEST(Network, RacksLimitWhatCrossesThem) {
  Hardware hardware = plain_hardware();
  hardware.network.nodes_per_rack = 2;
  hardware.network.rack_uplink_bytes_per_s = 1e9;
  const Network network(hardware, 32);
  const double S = 1e9;
  EXPECT_NEAR(collective_s(network, {0, 8}, Operation::kAllGather, 1'000'000'000), 0.5 * S / 10e9, 1e-12);
  EXPECT_NEAR(collective_s(network, {0, 16}, Operation::kAllGather, 1'000'000'000), 0.5 * S / 1e9, 1e-12);
  // Four ranks in two racks: the ring crosses each uplink once each way.
  EXPECT_NEAR(collective_s(network, {0, 8, 16, 24}, Operation::kAllGather, 1'000'000'000), 0.75 * S / 1e9,
              1e-12);
  // Pairs: each of two ranks of a rack sends a quarter of S to each of the two others.
  EXPECT_NEAR(collective_s(network, {0, 8, 16, 24}, Operation::kAllToAll, 1'000'000'000), 2 * 0.5 * S / 1e9,
              1e-12);
  const MessageRoute far(network, 0, 31), near(network, 0, 8), local(network, 0, 1);
  EXPECT_NEAR(lone_s(network, far.transfer(1'000'000'000)), 1, 1e-12);
  EXPECT_NEAR(lone_s(network, near.transfer(1'000'000'000)), 0.1, 1e-12);
  EXPECT_NEAR(lone_s(network, local.transfer(1'000'000'000)), 0.01, 1e-12);
}

// In a node whose devices form a ring, each neighbour has half of a device's bandwidth, and messages to
// others pass through the devices between.
TEST(Network, ARingOfDevicesCarriesMessagesThroughItsDevices) {
  Hardware hardware = plain_hardware();
  hardware.node.topology = Hardware::Topology::kRing;
  const Network network(hardware, 8);
  const uint64_t bytes = 1'000'000'000;
  for (const int to : {1, 3, 4, 7}) {
    const MessageRoute route(network, 0, to);
    const Transfer transfer = route.transfer(bytes);
    EXPECT_EQ(transfer.loads->size(), static_cast<size_t>(std::min(to, 8 - to)));
    EXPECT_NEAR(lone_s(network, transfer), 1e9 / 50e9, 1e-12);
  }
  EXPECT_NEAR(collective_s(network, every(0, 8, 1), Operation::kAllGather, bytes), 7.0 / 8 * 1e9 / 50e9,
              1e-12);
}

TEST(Network, AJobHasARank) { EXPECT_THROW(Network(plain_hardware(), 0), Error); }

}  // namespace
}  // namespace ingot
