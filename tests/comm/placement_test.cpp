#include "ingot/comm/placement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

namespace ingot {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// Returns places on the CPU of these hosts.
std::vector<RankPlace> on(const std::vector<std::string>& hosts) {
  std::vector<RankPlace> places;
  for (const std::string& host : hosts) places.push_back({host, ""});
  return places;
}

TEST(Placement, RanksThatFillHostsInOrderAreWell) {
  EXPECT_THAT(misplacements({.tp = 2}, on({"a", "a"})), IsEmpty());
  EXPECT_THAT(misplacements({.dp_replicate = 2, .tp = 2}, on({"a", "a", "b", "b"})), IsEmpty());
  // Four tensor-parallel ranks need two hosts of two.
  EXPECT_THAT(misplacements({.tp = 4}, on({"a", "a", "b", "b"})), IsEmpty());
  EXPECT_THAT(misplacements({.dp_replicate = 3}, on({"a", "b", "c"})), IsEmpty());
  EXPECT_THAT(misplacements({.dp_shard = 3}, on({"a", "a", "b"})), IsEmpty());
}

TEST(Placement, HostsInTurnAreNamed) {
  EXPECT_THAT(misplacements({.dp_shard = 4}, on({"a", "b", "a", "b"})),
              ElementsAre(AllOf(HasSubstr("a has ranks 0 and 2, and rank 1 is on b"),
                                HasSubstr("mpirun --map-by slot"))));
}

TEST(Placement, TensorParallelRanksOnTooManyHostsAreNamed) {
  // Three ranks per host divide a pair.
  EXPECT_THAT(misplacements({.dp_replicate = 3, .tp = 2}, on({"a", "a", "a", "b", "b", "b"})),
              ElementsAre(AllOf(HasSubstr("tensor-parallel ranks 2 to 3 run on 2 hosts (a, b)"),
                                HasSubstr("a multiple of parallel.tp = 2"))));
  // Another order takes tensor-parallel ranks apart.
  MeshShape shape{.dp_replicate = 2, .tp = 2};
  std::ranges::reverse(shape.order);
  EXPECT_THAT(misplacements(shape, on({"a", "a", "b", "b"})),
              ElementsAre(HasSubstr("tensor-parallel ranks 0 to 2 run on 2 hosts")));
}

TEST(Placement, RanksThatShareADeviceAreNamed) {
  const std::vector<RankPlace> places = {{"a", "0000:17:00.0"}, {"a", "0000:3d:00.0"}, {"a", "0000:17:00.0"}};
  EXPECT_THAT(misplacements({.dp_replicate = 3}, places),
              ElementsAre(HasSubstr("ranks 0 and 2 share the device 0000:17:00.0 of a")));
  // Devices of two hosts may have the same bus.
  EXPECT_THAT(misplacements({.dp_replicate = 2},
                            std::vector<RankPlace>{{"a", "0000:17:00.0"}, {"b", "0000:17:00.0"}}),
              IsEmpty());
}

TEST(Placement, ALoneRankGathersItsOwnPlace) {
  const auto world = self_communicator();
  const std::vector<RankPlace> places = gather_places(*world, Device::kCpu);
  ASSERT_EQ(places.size(), 1u);
  EXPECT_NE(places[0].host, "");
  EXPECT_EQ(places[0].device, "");
}

}  // namespace
}  // namespace ingot
