// Completion scripts for bash, zsh and fish. They complete commands, options, presets, the configuration's
// keys after --set, and files or folders where an option names one.
#pragma once

#include <string>

#include "apps/help/command_tree.h"

namespace ingot {

// shell: bash, zsh or fish. Throws a kUsage error for another one.
std::string completion_script(const CommandInfo& root, const std::string& shell);

}  // namespace ingot
