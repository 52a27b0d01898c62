// Reads and writes fp8.safetensors of a checkpoint, the amax history of delayed scaling: NAME.amax
// (steps) f32, oldest first.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "ingot/nn/fp8_state.h"

namespace ingot {

// Fp8History is a copy of the history, which can be written while training continues.
struct Fp8History {
  std::vector<std::string> names;  // names of the tensors
  std::vector<float> amaxes;       // (tensors, steps); empty if there is no history
};
Fp8History copy_of_history(Fp8State& fp8);

// Does nothing if there is no history. Throws a kDisk error, or a kNumerics error if a value is not
// finite.
void write_fp8_history(const std::filesystem::path& path, const Fp8History& history);

// Does nothing if there is no history. Throws a kData error that names the file and the tensor.
void read_fp8_history(const std::filesystem::path& path, Fp8State& fp8);

// Returns true if the file holds everything that read_fp8_history would read.
bool has_fp8_history(const std::filesystem::path& path, Fp8State& fp8);

}  // namespace ingot
