// Functions that run another program, without a shell, and read its standard output.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ingot {

// Passes the output to `take` as it comes, until it returns false, which kills the program. Its standard
// input is /dev/null, and it shares the standard error of this program. Returns true if it was started, was
// not killed, and ended with exit code 0. arguments and errors: as in ChildProgram.
bool read_output(const std::vector<std::string>& arguments,
                 const std::function<bool(std::string_view)>& take);

// Returns the output of a program that runs in the root folder with LC_ALL=C, and whose errors are dropped.
// Returns nullopt if there is no such program, if it exits with a status other than 0, or if it writes more
// than max_bytes.
std::optional<std::string> program_output(const std::vector<std::string>& arguments, size_t max_bytes);

}  // namespace ingot
