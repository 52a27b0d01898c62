// The comparison of a run's plan of memory with what the machine has, before any of it is taken.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "ingot/config/config.h"
#include "ingot/memory/memory_limit.h"
#include "ingot/memory/memory_plan.h"
#include "ingot/train/trainer_parts.h"

namespace ingot {

struct MemoryLimits {
  MemoryLimit host, device;
  // Ranks with the same name share the host's memory, those with the same device name the device's.
  std::string machine, device_name;
};

// Those of this process, and of its current device if the run is for one.
MemoryLimits memory_limits(Device device);

// kMemory error if the ranks of one machine, or of one device, will together take more than there is: it
// names the largest items and the cheapest changes of the configuration that fit, each tried by the same
// plan. With train.overcommit nothing is thrown: the text of the error is returned, else an empty one. All
// ranks call it and end alike.
std::string check_memory(const RunConfig& config, TrainerParts& parts, const MemoryLimits& limits);

// kMemory error if `bytes` more than are held now will not fit into the host's memory and its swap.
void require_memory(uint64_t bytes, std::string_view what, const MemoryFiles& files = {});

}  // namespace ingot
