#include "ingot/comm/mesh.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

namespace ingot {
namespace {

double distance(const MeshShape& a, const MeshShape& b) {
  const auto octaves = [](int x, int y) { return std::abs(std::log2(static_cast<double>(x) / y)); };
  return octaves(a.pp, b.pp) + octaves(a.dp_replicate, b.dp_replicate) + octaves(a.dp_shard, b.dp_shard) +
         octaves(a.tp, b.tp);
}

}  // namespace

std::string MeshShape::to_string() const {
  return fmt::format("pp={} dp={} fsdp={} tp={}", pp, dp_replicate, dp_shard, tp);
}

MeshPlace place_of(const MeshShape& shape, int rank) {
  MeshPlace place;
  place.tp_rank = rank % shape.tp;
  rank /= shape.tp;
  place.shard = rank % shape.dp_shard;
  rank /= shape.dp_shard;
  place.replica = rank % shape.dp_replicate;
  place.stage = rank / shape.dp_replicate;
  return place;
}

int rank_at(const MeshShape& shape, const MeshPlace& place) {
  return ((place.stage * shape.dp_replicate + place.replica) * shape.dp_shard + place.shard) * shape.tp +
         place.tp_rank;
}

std::vector<MeshShape> nearest_shapes(const MeshShape& wanted, int ranks, size_t count) {
  std::vector<MeshShape> shapes;
  for (int pp = 1; pp <= ranks; ++pp) {
    if (ranks % pp != 0) continue;
    for (int replicate = 1; replicate <= ranks / pp; ++replicate) {
      if (ranks / pp % replicate != 0) continue;
      for (int shard = 1; shard <= ranks / pp / replicate; ++shard)
        if (ranks / pp / replicate % shard == 0)
          shapes.push_back(
              {.pp = pp, .dp_replicate = replicate, .dp_shard = shard, .tp = ranks / pp / replicate / shard});
    }
  }
  std::ranges::stable_sort(shapes, {}, [&](const MeshShape& s) { return distance(s, wanted); });
  shapes.resize(std::min(count, shapes.size()));
  return shapes;
}

Mesh Mesh::make(Communicator& world, const MeshShape& shape) {
  const bool is_positive = shape.pp >= 1 && shape.dp_replicate >= 1 && shape.dp_shard >= 1 && shape.tp >= 1;
  if (!is_positive)
    fail(ErrorKind::kUsage, "parallel: every degree must be at least 1, got {}", shape.to_string());
  if (shape.size() != world.size()) {
    std::string nearest;
    for (const MeshShape& s : nearest_shapes(shape, world.size()))
      nearest += (nearest.empty() ? "" : ", or ") + s.to_string();
    fail(ErrorKind::kUsage, "parallel: {} makes {} ranks, but {} were started; nearest that fit: {}",
         shape.to_string(), shape.size(), world.size(), nearest);
  }
  Mesh mesh;
  mesh.shape = shape;
  mesh.place = place_of(shape, world.rank());
  // Ranks with the same color are in one group.
  const auto group = [&](int color, const char* name) { return world.split(color, world.rank(), name); };
  // The color of a group along some axes is its first rank, whose place has a zero on these axes.
  const auto along = [&](MeshPlace first, const char* name) { return group(rank_at(shape, first), name); };
  const auto [stage, replica, shard, tp_rank] = mesh.place;
  mesh.world = group(0, "world");
  mesh.pp = along({0, replica, shard, tp_rank}, "pp");
  mesh.replicate = along({stage, 0, shard, tp_rank}, "replicate");
  mesh.shard = along({stage, replica, 0, tp_rank}, "shard");
  mesh.tp = along({stage, replica, shard, 0}, "tp");
  mesh.dp = along({stage, 0, 0, tp_rank}, "dp");
  mesh.data = along({0, 0, 0, tp_rank}, "data");
  mesh.weights = along({0, replica, 0, 0}, "weights");
  mesh.update = along({stage, replica, 0, 0}, "update");
  return mesh;
}

Mesh Mesh::planned(const MeshShape& shape, int rank) {
  const auto [stage, replica, shard, tp_rank] = place_of(shape, rank);
  const auto [pp, replicas, shards, tp] = shape;
  Mesh mesh;
  mesh.shape = shape;
  mesh.place = place_of(shape, rank);
  mesh.world = planned_communicator("world", rank, shape.size());
  mesh.pp = planned_communicator("pp", stage, pp);
  mesh.replicate = planned_communicator("replicate", replica, replicas);
  mesh.shard = planned_communicator("shard", shard, shards);
  mesh.tp = planned_communicator("tp", tp_rank, tp);
  mesh.dp = planned_communicator("dp", replica * shards + shard, replicas * shards);
  mesh.data = planned_communicator("data", rank / tp, shape.size() / tp);
  mesh.weights =
      planned_communicator("weights", (stage * shards + shard) * tp + tp_rank, shape.size() / replicas);
  mesh.update = planned_communicator("update", shard * tp + tp_rank, shards * tp);
  return mesh;
}

Mesh Mesh::alone() {
  const std::unique_ptr<Communicator> world = self_communicator();
  return make(*world, {});
}

}  // namespace ingot
