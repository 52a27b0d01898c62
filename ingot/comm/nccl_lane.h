// A lane of a group over NCCL: a communicator, its stream, and what runs there. Internal to group_nccl.cpp.
#pragma once

#include <fmt/core.h>
#include <nccl.h>

#include <cstdint>
#include <deque>
#include <memory>
#include <string>

#include "ingot/comm/communicator.h"
#include "ingot/core/cuda/cuda_device.h"
#include "ingot/core/stream.h"

namespace ingot::nccl {

// The most CTAs (blocks) that one operation of a link or of a lane for collectives may have; NCCL would take
// up to 32. A CTA that waits for another rank occupies a multiprocessor. If waiting operations occupied them
// all, products could not run and the messages that depend on those would never be sent. A rank of every axis
// has 4 links (activations and gradients, from and to a neighbour), and operations wait in at most 7 lanes at
// one time: 2 of tensor parallelism, 2 of shards, and 1 each of replicas, of Muon's update and of tied
// weights. The few bytes of the world's group take 1 CTA.
constexpr int kLinkCtas = 4, kCollectiveCtas = 16;
constexpr int kMultiprocessors = 132;  // an H100 SXM or an H200 has so many
static_assert(4 * kLinkCtas + 7 * kCollectiveCtas + 1 < kMultiprocessors);

// A collective that was submitted to the device, or all those of a lane in a CUDA graph that was launched.
struct Running {
  std::string kind, name;
  uint64_t number;
  cudaEvent_t end;
};

// The collectives of a lane in a CUDA graph, in order.
struct GraphPart {
  uint64_t collectives = 0;
  std::string first, last;  // "all_reduce gradients 0"

  void add(const CommOperation& o) {
    last = fmt::format("{} {}", kind_name(o.kind), o.name);
    if (collectives++ == 0) first = last;
  }
  std::string kind() const {
    return fmt::format("a graph with {} collective{}", collectives, collectives == 1 ? "" : "s");
  }
  std::string text() const { return collectives == 1 ? first : first + " to " + last; }
};

// The group's own thread starts collectives and waits for them.
struct Lane {
  const char* name = "";
  ncclComm_t comm = nullptr;  // guarded by the group's comms_mutex_; null once it is aborted or destroyed
  Stream queue = cuda::make_priority_stream();
  // This lane's collectives in the graph that is being captured; null while none is.
  std::shared_ptr<GraphPart> in_graph = nullptr;
  // Guarded by the group's mutex_.
  std::deque<Running> running = {};
  uint64_t started = 0, noted = 0;  // numbers of the newest collective and of the one in notes
  std::unique_ptr<OperationNotes> notes = nullptr;
};

}  // namespace ingot::nccl
