// Manual pages in roff, written from the commands and the configuration's keys.
#pragma once

#include <map>
#include <string>

#include "apps/help/command_tree.h"

namespace ingot {

// Returns the pages by file name: ingot.1, one per command (ingot-data-prepare.1), and ingot-config.5 with
// all keys and presets.
std::map<std::string, std::string> man_pages(const CommandInfo& root, const std::string& version);

}  // namespace ingot
