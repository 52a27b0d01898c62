// The names that other trainers (nanoGPT, llm.c, Hugging Face, Megatron, torchtitan, Lightning) use for keys
// and values of Ingot's configuration. "Did you mean" suggests Ingot's names; the others are never accepted.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ingot {

// Returns the keys that another trainer's name for a key stands for: {"model.layers"} for "n_layer". Case
// and hyphens do not matter. A few names are known with their section only: "optimizer.type". A result may be
// a command's option: {"--out DIR"} for "out_dir". Empty if the name is unknown.
std::vector<std::string> keys_known_as(std::string_view name);

// Returns what Ingot has in place of the thing that another trainer's key, section or option names, or that
// it lacks it; "" if the name is unknown.
std::string_view answer_about(std::string_view name);

// Returns the section that another trainer's name for a section stands for: {"optimizer"} for "optim".
std::vector<std::string> sections_known_as(std::string_view section);

// Returns the values of a key that the given value may stand for, best first. `names` are the values that
// the key accepts. Names of other trainers come first ("gpu" is "cuda", "bfloat16" is "bf16"), else the
// nearest by spelling are taken.
std::vector<std::string> suggested_values(std::string_view value, std::span<const std::string> names);

// Returns every name that keys_known_as() knows, for tests.
std::vector<std::string> names_of_other_trainers();

}  // namespace ingot
