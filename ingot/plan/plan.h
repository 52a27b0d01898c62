// Plan: what a run will take, before it starts: memory, the time of a step and where it goes, and the tokens,
// hours and energy to the end.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ingot/config/config.h"
#include "ingot/memory/memory_plan.h"
#include "ingot/plan/job.h"

namespace ingot {

struct ModelPart {
  std::string name;            // "attention"
  int64_t parameters = 0;      // without padding
  double flops_per_token = 0;  // forward and backward, nothing computed twice
};

// The parts of a resolved configuration; they add up to parameters() and flops_per_token().
std::vector<ModelPart> model_parts(const ModelConfig& config);

struct RankMemory {
  int rank = 0;                   // the first rank of its class
  int count = 1;                  // ranks with the same memory
  std::vector<MemoryItem> items;  // arenas first
  uint64_t peak_bytes = 0;
};

// The memory of every class of ranks (plan_memory).
std::vector<RankMemory> plan_rank_memory(const RunConfig& config);

}  // namespace ingot
