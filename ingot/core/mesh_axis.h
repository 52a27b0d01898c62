// The axes along which a run divides its ranks (comm/mesh.h).
#pragma once

#include <array>

namespace ingot {

enum class MeshAxis { kReplicate, kShard, kStage, kTensor };  // parallel.dp, fsdp, pp and tp

// All axes, the outermost first. Ranks that differ only along the last axis are neighbours.
using MeshOrder = std::array<MeshAxis, 4>;

inline constexpr MeshOrder kMeshOrder = {MeshAxis::kReplicate, MeshAxis::kShard, MeshAxis::kStage,
                                         MeshAxis::kTensor};

}  // namespace ingot
