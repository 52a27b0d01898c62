// Errors answer a name on the Hugging Face Hub with the command that fetches it.
#pragma once

#include <filesystem>
#include <string>

namespace ingot {

// Returns the end of an error about a path that may be meant as a name on the Hub ("gpt2", "org/model"): that
// Ingot does not fetch it, and how to. Empty if the path exists or cannot be such a name.
std::string hub_hint(const std::filesystem::path& given);

}  // namespace ingot
