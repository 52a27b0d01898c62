// MemoryPlan: what a run will take of memory, known before any of it is taken. The arenas are measured by
// building the trainer itself on addresses without memory (core/arena.h), so the plan cannot differ from it;
// what depends on data is estimated from the sizes of files.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "ingot/config/config.h"
#include "ingot/core/arena.h"
#include "ingot/train/trainer_parts.h"

namespace ingot {

struct MemoryItem {
  std::string name;  // "parameters"
  uint64_t bytes = 0;
  Memory memory = Memory::kHost;
};

struct MemoryPlan {
  std::vector<MemoryItem> items;  // arenas first, in the trainer's order
  uint64_t loading_bytes = 0;     // taken on the host while data is read, before any of the items exists

  // The most that is taken at once, of the host (pinned memory too) or of the device.
  uint64_t host_bytes() const;
  uint64_t device_bytes() const;
  // The `count` largest as text: "optimizer 13.2 GB, activations 12.1 GB".
  std::string largest(size_t count) const;
};

// Of one rank, by the parts it will have (they are asked for `planned()` parts only and nothing is changed).
// A model.vocab of 0 is taken from data.tokenizer. Text and tokens of absent files count as none. Throws what
// the trainer would throw for a configuration that it cannot have.
MemoryPlan plan_memory(const RunConfig& config, const TrainerParts& parts);

// The vocabulary that the run's tokenizer will have: exact for bytes and for a file, the most that it may
// become for a bpe that is still to be trained, 256 for characters that are not read yet.
int64_t planned_vocab(const DataConfig& data);

}  // namespace ingot
