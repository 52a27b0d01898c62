// Compares a run's memory plan with the memory of the machine before any of it is allocated.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "ingot/comm/mesh.h"
#include "ingot/config/config.h"
#include "ingot/memory/memory_limit.h"
#include "ingot/memory/memory_plan.h"

namespace ingot {

struct MemoryLimits {
  MemoryLimit host, device;
  // Ranks with the same `machine` share the host's memory. Among them, ranks with the same `device_name`
  // share the device's memory.
  std::string machine, device_name;
};

// Returns the limits of this process, and of its current device if the run uses one.
MemoryLimits memory_limits(Device device);

// Throws a kMemory error if the ranks of one machine, or of one device, together need more memory than is
// available. The error names the largest items and the cheapest changes of the configuration that fit, each
// tried with the same plan. With train.overcommit it returns the error's text and throws nothing. Returns an
// empty text if the memory suffices. All ranks must call it and have the same outcome.
std::string check_memory(const RunConfig& config, const Mesh& mesh, const MemoryLimits& limits);

// Returns why memory does not allow the copy of the state from which checkpoints are written while training
// continues; empty if it does, or if the run makes no such copy. All ranks must call it and have the same
// outcome.
std::string no_room_for_copy(const RunConfig& config, const Mesh& mesh, const MemoryLimits& limits);

// Throws a kMemory error if `bytes` more than are allocated now do not fit into the host's memory and its
// swap.
void require_memory(uint64_t bytes, std::string_view what, const MemoryFiles& files = {});
// Throws a kMemory error if they do not fit into the memory of the current device.
void require_device_memory(uint64_t bytes, std::string_view what);

}  // namespace ingot
