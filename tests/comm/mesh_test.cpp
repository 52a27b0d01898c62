#include "ingot/comm/mesh.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "tests/reference/error_of.h"

namespace ingot {
namespace {

TEST(Mesh, PlacesAndRanksAreInverse) {
  const MeshShape shape{.pp = 2, .dp_replicate = 3, .dp_shard = 2, .tp = 4};
  EXPECT_EQ(shape.size(), 48);
  for (int rank = 0; rank < shape.size(); ++rank) EXPECT_EQ(rank_at(shape, place_of(shape, rank)), rank);
  // Adjacent ranks differ in their tensor-parallel rank first, then in their stage, shard and replica.
  EXPECT_EQ(place_of(shape, 3), (MeshPlace{.tp_rank = 3}));
  EXPECT_EQ(place_of(shape, 4), (MeshPlace{.stage = 1}));
  EXPECT_EQ(place_of(shape, 8), (MeshPlace{.shard = 1}));
  EXPECT_EQ(place_of(shape, 16), (MeshPlace{.replica = 1}));
}

// Another order puts the same groups on other ranks: the places in a group, and their order in it, stay.
TEST(Mesh, AnOrderMovesPlacesAndKeepsGroups) {
  const MeshShape usual{.pp = 2, .dp_replicate = 3, .dp_shard = 2, .tp = 2};
  const auto places = [](const MeshShape& shape, int rank, const GroupAxes& axes) {
    std::vector<MeshPlace> all;
    for (const int member : group_ranks(shape, rank, axes)) all.push_back(place_of(shape, member));
    return all;
  };
  MeshShape shape = usual;
  std::ranges::sort(shape.order);
  int orders = 0;
  do {
    ++orders;
    const MeshAxis last = shape.order.back();
    EXPECT_EQ(group_ranks(shape, 0,
                          {.pp = last == MeshAxis::kStage,
                           .replicate = last == MeshAxis::kReplicate,
                           .shard = last == MeshAxis::kShard,
                           .tp = last == MeshAxis::kTensor})
                  .back(),
              shape.along(last) - 1);
    for (int rank = 0; rank < shape.size(); ++rank) {
      const MeshPlace place = place_of(shape, rank);
      EXPECT_EQ(rank_at(shape, place), rank);
      for (const MeshGroup& group : mesh_groups())
        if (group.communicator != &Mesh::world) {
          EXPECT_EQ(places(shape, rank, group.axes), places(usual, rank_at(usual, place), group.axes));
        }
    }
  } while (std::ranges::next_permutation(shape.order).found);
  EXPECT_EQ(orders, 24);
}

TEST(Mesh, NearestShapesFitAndComeNearestFirst) {
  const MeshShape wanted{.pp = 1, .dp_replicate = 1, .dp_shard = 1, .tp = 3};
  const std::vector<MeshShape> shapes = nearest_shapes(wanted, 4);
  ASSERT_EQ(shapes.size(), 3u);
  for (const MeshShape& s : shapes) EXPECT_EQ(s.size(), 4);
  EXPECT_EQ(shapes[0].to_string(), "pp=1 dp=1 fsdp=1 tp=4");
  EXPECT_EQ(nearest_shapes(wanted, 1, 5).size(), 1u);
  std::set<std::string> all;
  for (const MeshShape& s : nearest_shapes(wanted, 12, 1000)) all.insert(s.to_string());
  EXPECT_EQ(all.size(), 40u);  // 12 = 2^2 * 3, split over four axes: C(5,3) * C(4,3)
}

TEST(Mesh, OneRankIsAlone) {
  const auto world = self_communicator();
  const Mesh mesh = Mesh::make(*world, {});
  for (const auto* group : {&mesh.world, &mesh.pp, &mesh.replicate, &mesh.shard, &mesh.tp, &mesh.dp,
                            &mesh.data, &mesh.weights, &mesh.update})
    EXPECT_EQ((*group)->size(), 1);
  EXPECT_EQ(mesh.dp->name(), "dp");
}

// In every group, the ranks that a plan gives to a place are 0 .. size - 1, each for the same number of
// places.
TEST(Mesh, PlannedGroupsCoverEveryRankEvenly) {
  const MeshShape shape{.pp = 2, .dp_replicate = 3, .dp_shard = 2, .tp = 2};
  using Group = std::unique_ptr<Communicator> Mesh::*;
  const std::pair<Group, int> groups[] = {{&Mesh::world, 24}, {&Mesh::pp, 2},      {&Mesh::replicate, 3},
                                          {&Mesh::shard, 2},  {&Mesh::tp, 2},      {&Mesh::dp, 6},
                                          {&Mesh::data, 12},  {&Mesh::weights, 8}, {&Mesh::update, 4}};
  for (const auto& [group, size] : groups) {
    std::map<int, int> places;
    for (int rank = 0; rank < shape.size(); ++rank) {
      const Mesh mesh = Mesh::planned(shape, rank);
      EXPECT_EQ((mesh.*group)->size(), size) << (mesh.*group)->name();
      ++places[(mesh.*group)->rank()];
    }
    EXPECT_EQ(std::ssize(places), size);
    for (const auto& [rank, count] : places) EXPECT_EQ(count, shape.size() / size) << rank;
  }
}

TEST(Mesh, ABadShapeIsRefusedWithTheNearest) {
  const auto world = self_communicator();
  EXPECT_EQ(usage_error([&] { Mesh::make(*world, {.pp = 2, .dp_replicate = 1, .dp_shard = 1, .tp = 1}); }),
            "parallel: pp=2 dp=1 fsdp=1 tp=1 makes 2 ranks, but 1 were started; nearest that fit: "
            "pp=1 dp=1 fsdp=1 tp=1");
  EXPECT_THROW(Mesh::make(*world, {.pp = 0, .dp_replicate = 1, .dp_shard = 1, .tp = 1}), Error);
}

}  // namespace
}  // namespace ingot
