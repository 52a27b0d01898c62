// What is checked of a model that strangers may have made, before memory is taken for it and before it is
// used.
#pragma once

#include <filesystem>
#include <string_view>

#include "ingot/formats/safetensors.h"
#include "ingot/nn/config.h"

namespace ingot {

// Compares a configuration's sizes with what the file of weights can hold; `config_path` is where they stand.
// kData error naming the sizes for more layers than tensors, or a table that is larger than all weights;
// kMemory error where the table of rotary positions alone exceeds this machine's memory.
void check_sizes(const ModelConfig& config, const SafetensorsFile& weights,
                 const std::filesystem::path& config_path);

// kNumerics error naming the first tensor, of those whose names begin with the prefix, with a number that is
// not finite.
void check_finite(const SafetensorsFile& weights, std::string_view prefix = "");

}  // namespace ingot
