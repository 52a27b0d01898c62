#include "ingot/comm/placement.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <set>

#include "ingot/core/cuda/cuda_device.h"

namespace ingot {
namespace {

// PlaceMessage is the message that each rank sends to the others.
struct PlaceMessage {
  std::array<char, 256> host = {};
  std::array<char, 32> device = {};
};

template <size_t N>
void put(std::array<char, N>& to, const std::string& text) {
  std::memcpy(to.data(), text.data(), std::min(text.size(), N - 1));
}

// Returns the ranks of every host.
std::map<std::string, std::vector<int>> ranks_of_hosts(std::span<const RankPlace> places) {
  std::map<std::string, std::vector<int>> hosts;
  for (size_t rank = 0; rank < places.size(); ++rank)
    hosts[places[rank].host].push_back(static_cast<int>(rank));
  return hosts;
}

std::string scattered_ranks(std::span<const RankPlace> places) {
  for (const auto& [host, ranks] : ranks_of_hosts(places)) {
    const auto gap = std::ranges::adjacent_find(ranks, [](int a, int b) { return b != a + 1; });
    if (gap == ranks.end()) continue;
    const int other = *gap + 1;
    return fmt::format(
        "ranks are not placed host by host: {} has ranks {} and {}, and rank {} is on {}; messages between "
        "neighbours of the mesh cross the network (start with mpirun --map-by slot, or srun "
        "--distribution=block)",
        host, *gap, gap[1], other, places[static_cast<size_t>(other)].host);
  }
  return "";
}

std::string split_tensor_ranks(const MeshShape& shape, std::span<const RankPlace> places) {
  size_t most = 0;  // ranks on one host
  for (const auto& [host, ranks] : ranks_of_hosts(places)) most = std::max(most, ranks.size());
  const size_t needed = (static_cast<size_t>(shape.tp) + most - 1) / most;
  for (int rank = 0; rank < shape.size(); ++rank) {
    const std::vector<int> group = group_ranks(shape, rank, {.tp = true});
    std::set<std::string> hosts;
    for (const int member : group) hosts.insert(places[static_cast<size_t>(member)].host);
    if (hosts.size() <= needed) continue;
    std::string names;
    for (const std::string& host : hosts) names += (names.empty() ? "" : ", ") + host;
    return fmt::format(
        "the tensor-parallel ranks {} to {} run on {} hosts ({}), and every layer waits for their messages; "
        "put "
        "tp last in parallel.order, and a multiple of parallel.tp = {} ranks on every host",
        group.front(), group.back(), hosts.size(), names, shape.tp);
  }
  return "";
}

std::string shared_device(std::span<const RankPlace> places) {
  std::map<std::pair<std::string, std::string>, size_t> first;
  for (size_t rank = 0; rank < places.size(); ++rank) {
    const RankPlace& place = places[rank];
    if (place.device.empty()) continue;
    const auto [at, is_new] = first.try_emplace({place.host, place.device}, rank);
    if (is_new) continue;
    return fmt::format(
        "ranks {} and {} share the device {} of {}, so messages between ranks are copied through the host's "
        "memory instead of NCCL; start one rank per device",
        at->second, rank, place.device, place.host);
  }
  return "";
}

}  // namespace

std::vector<RankPlace> gather_places(Communicator& world, Device device) {
  PlaceMessage own;
  gethostname(own.host.data(), own.host.size() - 1);
  if constexpr (kHasCuda)
    if (device == Device::kCuda) put(own.device, cuda::device_bus());
  std::vector<PlaceMessage> all(static_cast<size_t>(world.size()));
  const auto bytes = static_cast<int64_t>(sizeof own);
  world.all_gather_into("places", Tensor(all.data(), DType::u8, {world.size() * bytes}),
                        Tensor(&own, DType::u8, {bytes}));
  std::vector<RankPlace> places;
  for (const PlaceMessage& message : all) places.push_back({message.host.data(), message.device.data()});
  return places;
}

std::vector<std::string> misplacements(const MeshShape& shape, std::span<const RankPlace> places) {
  std::vector<std::string> all;
  for (const std::string& text :
       {scattered_ranks(places), split_tensor_ranks(shape, places), shared_device(places)})
    if (!text.empty()) all.push_back(text);
  return all;
}

}  // namespace ingot
