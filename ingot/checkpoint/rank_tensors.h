// Reads and writes a checkpoint's weights and optimizer state as ranges of logical tensors. Each rank writes
// and reads its own shards, whatever the parallel layout, so no rank needs memory for more than its shards.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "ingot/checkpoint/hf_weights.h"
#include "ingot/checkpoint/saved_state.h"
#include "ingot/comm/communicator.h"
#include "ingot/formats/safetensors.h"
#include "ingot/formats/safetensors_ranges.h"
#include "ingot/formats/safetensors_set.h"
#include "ingot/train/trainer.h"

namespace ingot {

// Returns the optimizer's logical tensors, in the order of Optimizer::states, without bytes.
std::vector<SafetensorsSource> optimizer_tensors(const Optimizer& optimizer);

// The weights' file and optimizer.safetensors of a checkpoint that several ranks write into a folder that all
// of them see. The files equal, byte for byte, what a single rank would write. Rank 0 calls create; then
// every rank calls write; then all ranks call add_up_sums together, and rank 0 calls verify.
class RankTensorFiles {
 public:
  // Touches no file. Borrows the trainer's group of all ranks.
  RankTensorFiles(const std::filesystem::path& folder, const Trainer& trainer);

  void create() const;  // kDisk error if there is no space
  // Writes what this rank has and flushes it. May run on another thread than the trainer's. kDisk error, or
  // kNumerics for a number that is not finite.
  void write(SavedState& saved);
  void add_up_sums();
  // Reads the files back and returns their XXH3-64 by name. kDisk error if they are not what the ranks wrote.
  std::map<std::string, uint64_t> verify() const;

 private:
  struct File {
    SafetensorsRanges ranges;
    std::vector<uint64_t> sums;  // this rank's sums; after add_up_sums those of all ranks
  };

  Communicator& all_;
  File weights_, states_;
};

// Both read this rank's shards: of the parameters that `tensors` has, and of the optimizer state. kData
// error, naming file and tensor.
void read_rank_weights(const SafetensorsSet& files, const std::vector<HfTensor>& tensors, Trainer& trainer);
void read_rank_states(const SafetensorsFile& file, Trainer& trainer);

}  // namespace ingot
