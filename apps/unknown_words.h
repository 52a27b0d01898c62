// What was meant by a word of the command line that the parser does not know. For command_line.cpp only.
#pragma once

#include <string>
#include <vector>

namespace CLI {
class App;
}  // namespace CLI

namespace ingot {

// Names the first command or option among the words (without the program's name) that is unknown where it
// stands, and the nearest ones; for an option that is a configuration key, how the key is set. "" if all are
// known.
std::string unknown_word(const CLI::App& program, const std::vector<std::string>& words);

// If "help" stands where a command is expected, takes it out, appends --help and returns true.
bool take_help(const CLI::App& program, std::vector<std::string>& words);

}  // namespace ingot
