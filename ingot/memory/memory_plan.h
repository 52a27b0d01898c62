// MemoryPlan lists the memory that a run will use, before any of it is allocated. The arenas are measured
// by building the trainer itself on addresses without memory (core/arena.h), so the plan cannot differ
// from the trainer. What depends on data is estimated from file sizes.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "ingot/comm/mesh.h"
#include "ingot/config/config.h"
#include "ingot/core/arena.h"

namespace ingot {

// A device's peak is measured by products of square matrices with this many rows for each of its
// multiprocessors (run/peak.h).
inline constexpr int64_t kPeakRows = 64;

// The name of the item that is there only while a checkpoint is written.
inline constexpr const char* kCheckpointCopy = "copy for checkpoints";

struct MemoryItem {
  std::string name;  // "parameters"
  uint64_t bytes = 0;
  Memory memory = Memory::kHost;
  bool operator==(const MemoryItem&) const = default;
};

struct MemoryPlan {
  std::vector<MemoryItem> items;  // arenas first, in the trainer's order
  uint64_t loading_bytes = 0;     // host memory while data is read, before any item exists

  // Peak bytes on the host (including pinned memory) or on the device.
  uint64_t host_bytes() const;
  uint64_t device_bytes() const;
  // The `count` largest items as text: "optimizer 13.2 GB, activations 12.1 GB".
  std::string largest(size_t count) const;
};

// Plans the memory of one rank of a mesh. It needs no other ranks and no device. A model.vocab of 0 is taken
// from data.tokenizer. Missing files count as empty. Throws what the trainer would throw for an invalid
// configuration. With groups that know nothing of the other ranks, the plan has too little scratch for
// distributed Muon over shards, whose buffers are as large as the largest shard of any rank.
// plan_rank_memory() (plan/plan.h) avoids this: it lets the ranks exchange their sizes.
MemoryPlan plan_memory(const RunConfig& config, const MeshShape& shape = {}, int rank = 0,
                       const Mesh::MakeGroup& make_group = planned_communicator);

// Returns the size of the vocabulary that the run's tokenizer will have. It is exact for bytes and for a
// tokenizer file, an upper bound for a bpe that is not trained yet, and 256 for characters that are not
// read yet.
int64_t planned_vocab(const DataConfig& data);

}  // namespace ingot
