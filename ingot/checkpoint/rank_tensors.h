// Weights and optimizer state of a checkpoint as ranges of logical tensors: every rank of a training writes
// and reads what it keeps, whatever the layout; no rank ever has more than its pieces.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "ingot/formats/safetensors.h"
#include "ingot/train/trainer.h"

namespace ingot {

// The optimizer's logical tensors in order of Optimizer::states, without bytes.
std::vector<SafetensorsSource> optimizer_tensors(const Optimizer& optimizer);

// model.safetensors and optimizer.safetensors into a folder that all ranks see, byte for byte what one rank
// would write. Numbers that several ranks keep are dealt out among them. Called by all ranks; returns when
// all have flushed theirs and rank 0 has read the files back. On rank 0: XXH3-64 by name. If one rank fails,
// all throw its error: kDisk, or kNumerics for a number that is not finite. REQUIRES:
// TrainingStore::expand_masters.
std::map<std::string, uint64_t> write_rank_tensors(const std::filesystem::path& folder, Trainer& trainer);

// What this rank keeps of the masters, and of the optimizer's states. kData error naming file and tensor.
void read_rank_masters(const SafetensorsFile& file, Trainer& trainer);
void read_rank_states(const SafetensorsFile& file, Trainer& trainer);

}  // namespace ingot
