// Running another program for its output, without a shell.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace ingot {

// What the program writes to its standard output. arguments[0] is its path, or a name that PATH knows. It
// runs in the root folder with LC_ALL=C, reads nothing, and its errors go nowhere. nullopt if it cannot be
// started, ends with anything but 0, or writes more than max_bytes.
std::optional<std::string> program_output(const std::vector<std::string>& arguments, size_t max_bytes);

}  // namespace ingot
