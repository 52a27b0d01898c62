// Reads and writes a checkpoint's weights and optimizer state as ranges of logical tensors. Each rank writes
// and reads its own shards, whatever the parallel layout, so no rank needs memory for more than its shards.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "ingot/formats/safetensors.h"
#include "ingot/train/trainer.h"

namespace ingot {

// Returns the optimizer's logical tensors, in the order of Optimizer::states, without bytes.
std::vector<SafetensorsSource> optimizer_tensors(const Optimizer& optimizer);

// Writes model.safetensors and optimizer.safetensors to a folder that all ranks see. The files equal,
// byte for byte, what a single rank would write; replicas of a shard divide its elements among
// themselves. All ranks must call it; it returns when all have flushed and rank 0 has read the files
// back. On rank 0 the result is the files' XXH3-64 by name, on other ranks it is empty. If one rank
// fails, all throw its error: kDisk, or kNumerics for a non-finite number. REQUIRES:
// TrainingStore::expand_masters was called.
std::map<std::string, uint64_t> write_rank_tensors(const std::filesystem::path& folder, Trainer& trainer);

// Both read this rank's shards, of the masters and of the optimizer state. kData error, naming file
// and tensor.
void read_rank_masters(const SafetensorsFile& file, Trainer& trainer);
void read_rank_states(const SafetensorsFile& file, Trainer& trainer);

}  // namespace ingot
