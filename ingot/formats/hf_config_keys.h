// The keys of a config.json, by family: which of them Ingot reads, and why the others do not matter.
#pragma once

#include <string_view>

namespace ingot {

struct HfConfigKey {
  std::string_view families;  // "llama qwen2", or "*" for all
  std::string_view keys;      // names with spaces between them
  std::string_view
      irrelevant;  // why the model computes the same with any value; empty: parse_hf_config reads the key
};

// Returns nullptr if the key is unknown in the family. Names that begin with "_" belong to transformers
// itself and count as irrelevant.
const HfConfigKey* find_hf_config_key(std::string_view family, std::string_view key);

}  // namespace ingot
