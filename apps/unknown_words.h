// Suggests corrections for words of the command line that the parser does not know. Only command_line.cpp
// includes this.
#pragma once

#include <string>
#include <vector>

namespace CLI {
class App;
}  // namespace CLI

namespace ingot {

// Returns a message that names the first unknown command or option among the words (without the program's
// name) and the nearest known ones; if the option is a configuration key, the message shows how to set the
// key. Returns an empty text if all words are known.
std::string unknown_word(const CLI::App& program, const std::vector<std::string>& words);

// Returns the parser's refusal of a line whose words are all known, with the command's name before it. It
// adds the purpose of a missing option, and the place where a prompt belongs.
std::string missing_or_extra(const CLI::App& program, const std::vector<std::string>& words,
                             const std::string& refusal);

// If "help" stands where a command is expected, removes it, appends --help and returns true.
bool take_help(const CLI::App& program, std::vector<std::string>& words);

}  // namespace ingot
