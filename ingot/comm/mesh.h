// A mesh of ranks: replicas x shards x pipeline stages x tensor-parallel ranks. By default the
// tensor-parallel axis is innermost and the replicas are outermost, because neighbouring ranks have the
// fastest links and the axes communicate in this order: in every layer, between stages, once per unit, once
// per step.
//   rank = ((replica * shards + shard) * stages + stage) * tp + tp_rank
// Another order places the same groups on other ranks and changes no result.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "ingot/comm/communicator.h"
#include "ingot/core/mesh_axis.h"

namespace ingot {

struct MeshShape {
  int pp = 1;            // pipeline stages
  int dp_replicate = 1;  // replicas of all weights
  int dp_shard = 1;      // ranks that shard one copy of the weights (FSDP)
  int tp = 1;            // tensor-parallel ranks
  MeshOrder order = kMeshOrder;
  int along(MeshAxis axis) const;
  int size() const { return pp * dp_replicate * dp_shard * tp; }
  std::string to_string() const;  // "pp=2 dp=1 fsdp=2 tp=2"
};

struct MeshPlace {
  int stage = 0, replica = 0, shard = 0, tp_rank = 0;
  bool operator==(const MeshPlace&) const = default;
};

MeshPlace place_of(const MeshShape& shape, int rank);
int rank_at(const MeshShape& shape, const MeshPlace& place);

// Returns at most `count` shapes of `ranks` ranks that are nearest to one that does not fit; the distance
// counts factors of two.
std::vector<MeshShape> nearest_shapes(const MeshShape& wanted, int ranks, size_t count = 3);

// This rank's groups of ranks: all ranks, one group per axis, and those that span several axes.
struct Mesh {
  MeshShape shape;
  MeshPlace place;
  std::unique_ptr<Communicator> world;
  std::unique_ptr<Communicator> pp, replicate, shard, tp;
  std::unique_ptr<Communicator> dp;       // replicas and shards: the ranks that see different data
  std::unique_ptr<Communicator> data;     // dp and stages: their losses add up to those of a step
  std::unique_ptr<Communicator> weights;  // shards, stages and tp: they hold one copy of the weights together
  std::unique_ptr<Communicator> update;   // shards and tp of one stage: they make an update together

  // All ranks of the world call it. A kUsage error names the nearest shapes if shape.size() differs from
  // the size of the world.
  static Mesh make(Communicator& world, const MeshShape& shape);
  // The groups of one rank for a plan. make(name, rank, size) makes each; rank and size are the group's.
  using MakeGroup = std::function<std::unique_ptr<Communicator>(std::string name, int rank, int size)>;
  static Mesh planned(const MeshShape& shape, int rank, const MakeGroup& make = planned_communicator);
  // The mesh of a run on a single rank. timeout_s: as in TimeLimit.
  static Mesh alone(std::optional<double> timeout_s = {});
};

// The axes along which a group extends.
struct GroupAxes {
  bool pp = false, replicate = false, shard = false, tp = false;
};

struct MeshGroup {
  const char* name;
  GroupAxes axes;
  std::unique_ptr<Communicator> Mesh::*communicator;
};

// All groups of a mesh.
std::span<const MeshGroup> mesh_groups();

// Returns the world ranks of the group of `rank` along the axes, in the group's order: by stage, replica,
// shard and tensor-parallel rank, whatever the order of the axes. The ranks of the world keep their own
// order.
std::vector<int> group_ranks(const MeshShape& shape, int rank, const GroupAxes& axes);

}  // namespace ingot
