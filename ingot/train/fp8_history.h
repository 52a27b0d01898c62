// fp8.safetensors of a checkpoint: the amax history of delayed scaling, NAME.amax (steps) f32, oldest first.
#pragma once

#include <filesystem>

#include "ingot/nn/fp8_state.h"

namespace ingot {

// Writes nothing where there is no history. kDisk error; kNumerics error for a number that is not finite.
void write_fp8_history(const std::filesystem::path& path, Fp8State& fp8);

// Reads nothing where there is no history. kData error naming file and tensor.
void read_fp8_history(const std::filesystem::path& path, Fp8State& fp8);

// True if a file has what read_fp8_history would read.
bool has_fp8_history(const std::filesystem::path& path, Fp8State& fp8);

}  // namespace ingot
