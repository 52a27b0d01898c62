// Suggests corrections for words of the command line that the parser does not know. For command_line.cpp
// only.
#pragma once

#include <string>
#include <vector>

namespace CLI {
class App;
}  // namespace CLI

namespace ingot {

// Returns a message that names the first unknown command or option among the words (without the program's
// name) and the nearest known ones; for an option that is a configuration key, how to set the key. Empty if
// all are known.
std::string unknown_word(const CLI::App& program, const std::vector<std::string>& words);

// Returns the parser's refusal of a line whose words are all known, with the command's name before it: what a missing
// option is for, and where a prompt stands.
std::string missing_or_extra(const CLI::App& program, const std::vector<std::string>& words,
                             const std::string& refusal);

// If "help" stands where a command is expected, removes it, appends --help and returns true.
bool take_help(const CLI::App& program, std::vector<std::string>& words);

}  // namespace ingot
