// Checks a model from an untrusted source before memory is allocated for it and before it is used.
#pragma once

#include <filesystem>
#include <string_view>

#include "ingot/formats/safetensors_set.h"
#include "ingot/nn/config.h"

namespace ingot {

// Compares the sizes in a configuration (the file config_path) with what the weights can hold. kData
// error, naming the sizes, if there are more layers than tensors or a table is larger than all weights
// together. kMemory error if the table of rotary positions alone exceeds this machine's memory.
void check_sizes(const ModelConfig& config, const SafetensorsSet& weights,
                 const std::filesystem::path& config_path);

// kNumerics error, naming the first tensor with a non-finite number among those whose names
// begin with `prefix`.
void check_finite(const SafetensorsSet& weights, std::string_view prefix = "");

}  // namespace ingot
