// The names that other trainers (nanoGPT, llm.c, Hugging Face, Megatron, torchtitan, Lightning) use for what
// Ingot's configuration calls otherwise. They are suggested in "did you mean" and never accepted.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ingot {

// The keys that another trainer's name for a key stands for: {"model.layers"} for "n_layer". Case and hyphens
// do not matter. A command's option is among the answers: {"--out DIR"} for "out_dir". Empty if the name is
// not in the table.
std::vector<std::string> keys_known_as(std::string_view leaf);

// The section that another trainer's name for a section stands for: {"optimizer"} for "optim".
std::vector<std::string> sections_known_as(std::string_view section);

// Those of `names`, the values that a key takes, that the given value may stand for, best first: the names
// for it in other trainers ("gpu" is "cuda", "bfloat16" is "bf16"), else the nearest by spelling.
std::vector<std::string> suggested_values(std::string_view value, std::span<const std::string> names);

// Every name that keys_known_as() answers, for tests.
std::vector<std::string> names_of_other_trainers();

}  // namespace ingot
