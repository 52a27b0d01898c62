#include "ingot/comm/mesh.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>

namespace ingot {
namespace {

double distance(const MeshShape& a, const MeshShape& b) {
  const auto octaves = [](int x, int y) { return std::abs(std::log2(static_cast<double>(x) / y)); };
  return octaves(a.pp, b.pp) + octaves(a.dp_replicate, b.dp_replicate) + octaves(a.dp_shard, b.dp_shard) +
         octaves(a.tp, b.tp);
}

int& index_along(MeshPlace& place, MeshAxis axis) {
  switch (axis) {
    case MeshAxis::kReplicate:
      return place.replica;
    case MeshAxis::kShard:
      return place.shard;
    case MeshAxis::kStage:
      return place.stage;
    case MeshAxis::kTensor:
      break;
  }
  return place.tp_rank;
}

}  // namespace

std::string MeshShape::to_string() const {
  return fmt::format("pp={} dp={} fsdp={} tp={}", pp, dp_replicate, dp_shard, tp);
}

int MeshShape::along(MeshAxis axis) const {
  switch (axis) {
    case MeshAxis::kReplicate:
      return dp_replicate;
    case MeshAxis::kShard:
      return dp_shard;
    case MeshAxis::kStage:
      return pp;
    case MeshAxis::kTensor:
      return tp;
  }
  return 1;
}

MeshPlace place_of(const MeshShape& shape, int rank) {
  MeshPlace place;
  for (auto axis = shape.order.rbegin(); axis != shape.order.rend(); ++axis) {
    index_along(place, *axis) = rank % shape.along(*axis);
    rank /= shape.along(*axis);
  }
  return place;
}

int rank_at(const MeshShape& shape, const MeshPlace& place) {
  int rank = 0;
  MeshPlace copy = place;
  for (const MeshAxis axis : shape.order) rank = rank * shape.along(axis) + index_along(copy, axis);
  return rank;
}

std::vector<int> group_ranks(const MeshShape& shape, int rank, const GroupAxes& axes) {
  const MeshPlace own = place_of(shape, rank);
  std::vector<int> ranks;
  for (int stage = axes.pp ? 0 : own.stage; stage < (axes.pp ? shape.pp : own.stage + 1); ++stage)
    for (int replica = axes.replicate ? 0 : own.replica;
         replica < (axes.replicate ? shape.dp_replicate : own.replica + 1); ++replica)
      for (int shard = axes.shard ? 0 : own.shard; shard < (axes.shard ? shape.dp_shard : own.shard + 1);
           ++shard)
        for (int tp_rank = axes.tp ? 0 : own.tp_rank; tp_rank < (axes.tp ? shape.tp : own.tp_rank + 1);
             ++tp_rank)
          ranks.push_back(rank_at(shape, {stage, replica, shard, tp_rank}));
  if (std::ssize(ranks) == shape.size()) std::ranges::sort(ranks);
  return ranks;
}

std::span<const MeshGroup> mesh_groups() {
  static constexpr std::array<MeshGroup, 9> kGroups{{
      {"world", {.pp = true, .replicate = true, .shard = true, .tp = true}, &Mesh::world},
      {"pp", {.pp = true}, &Mesh::pp},
      {"replicate", {.replicate = true}, &Mesh::replicate},
      {"shard", {.shard = true}, &Mesh::shard},
      {"tp", {.tp = true}, &Mesh::tp},
      {"dp", {.replicate = true, .shard = true}, &Mesh::dp},
      {"data", {.pp = true, .replicate = true, .shard = true}, &Mesh::data},
      {"weights", {.pp = true, .shard = true, .tp = true}, &Mesh::weights},
      {"update", {.shard = true, .tp = true}, &Mesh::update},
  }};
  return kGroups;
}

namespace {

// make(name, own, ranks) makes the group of these world ranks, in which this rank has the index `own`.
template <typename F>
Mesh assemble(const MeshShape& shape, int rank, F&& make) {
  Mesh mesh;
  mesh.shape = shape;
  mesh.place = place_of(shape, rank);
  for (const MeshGroup& group : mesh_groups()) {
    const std::vector<int> ranks = group_ranks(shape, rank, group.axes);
    const auto own = static_cast<int>(std::ranges::find(ranks, rank) - ranks.begin());
    mesh.*group.communicator = make(group.name, own, ranks);
  }
  return mesh;
}

}  // namespace

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
  // Ranks with the same color are in one group; the color of a group is its first rank.
  return assemble(shape, world.rank(), [&](const char* name, int own, const std::vector<int>& ranks) {
    return world.split(ranks.front(), own, name);
  });
}

Mesh Mesh::planned(const MeshShape& shape, int rank, const MakeGroup& make) {
  return assemble(shape, rank, [&](const char* name, int own, const std::vector<int>& ranks) {
    return make(name, own, static_cast<int>(ranks.size()));
  });
}

Mesh Mesh::alone(std::optional<double> timeout_s) {
  const std::unique_ptr<Communicator> world = self_communicator("self", timeout_s);
  return make(*world, {});
}

}  // namespace ingot
