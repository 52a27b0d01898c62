// Runs another program, without a shell, and returns its output.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace ingot {

// Returns what the program writes to its standard output. arguments[0] is its path, or a name found in
// PATH. It runs in the root folder with LC_ALL=C; its standard input and standard error are /dev/null.
// Returns nullopt if it cannot be started, exits with a status other than 0, or writes more than max_bytes.
std::optional<std::string> program_output(const std::vector<std::string>& arguments, size_t max_bytes);

}  // namespace ingot
