// A mesh of ranks: pipeline stages x replicas x shards x tensor-parallel ranks, the tensor-parallel axis
// innermost (its ranks talk most, and neighbours are nearest).
//   rank = ((stage * replicas + replica) * shards + shard) * tp + tp_rank
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "ingot/comm/communicator.h"

namespace ingot {

struct MeshShape {
  int pp = 1;            // pipeline stages
  int dp_replicate = 1;  // replicas of everything
  int dp_shard = 1;      // ranks that share one copy of the weights (FSDP)
  int tp = 1;            // tensor-parallel ranks
  int size() const { return pp * dp_replicate * dp_shard * tp; }
  std::string to_string() const;  // "pp=2 dp=1 fsdp=2 tp=2"
};

struct MeshPlace {
  int stage = 0, replica = 0, shard = 0, tp_rank = 0;
  bool operator==(const MeshPlace&) const = default;
};

MeshPlace place_of(const MeshShape& shape, int rank);
int rank_at(const MeshShape& shape, const MeshPlace& place);

// Shapes of `ranks` ranks that are nearest to one that does not fit (fewest factors of two away), at most
// `count`.
std::vector<MeshShape> nearest_shapes(const MeshShape& wanted, int ranks, size_t count = 3);

// This rank's groups, one per axis, and the two that data parallelism needs beside them.
struct Mesh {
  MeshShape shape;
  MeshPlace place;
  std::unique_ptr<Communicator> pp, replicate, shard, tp;
  std::unique_ptr<Communicator> dp;  // replicas and shards: the ranks that see different data

  // Called by all ranks of the world. kUsage error naming the nearest shapes unless shape.size() is the
  // world's.
  static Mesh make(Communicator& world, const MeshShape& shape);
  // The groups of one rank for a plan of memory (planned_communicator).
  static Mesh planned(const MeshShape& shape, int rank);
};

}  // namespace ingot
