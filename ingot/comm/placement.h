// Finds ranks that the launcher has put on the wrong hosts or devices, before the first step.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "ingot/comm/communicator.h"
#include "ingot/comm/mesh.h"

namespace ingot {

struct RankPlace {
  std::string host;
  std::string device;  // the PCI bus of the rank's device; "" on the CPU
};

// Returns where every rank runs, in rank order. All ranks call it.
std::vector<RankPlace> gather_places(Communicator& world, Device device);

// Returns one sentence for each kind of misplacement, with the ranks, the hosts and the remedy:
//   - hosts that do not have consecutive ranks, so that neighbours of the mesh meet over the network,
//   - tensor-parallel ranks on more hosts than they need,
//   - ranks that share a device.
// places has one entry per rank of the shape.
std::vector<std::string> misplacements(const MeshShape& shape, std::span<const RankPlace> places);

}  // namespace ingot
