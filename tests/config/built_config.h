// Configurations as a command line makes them.
#pragma once

#include <string>
#include <vector>

#include "ingot/config/config_toml.h"

namespace ingot {

// Returns the configuration of a preset or file, or the default if `source` is empty, after the assignments.
inline RunConfig built_config(const std::string& source, const std::vector<std::string>& assignments,
                              const std::vector<std::string>& more = {}) {
  ConfigBuilder builder;
  if (!source.empty()) builder.add_source(source);
  for (const std::string& assignment : assignments) builder.add_override(assignment);
  for (const std::string& assignment : more) builder.add_override(assignment);
  return builder.build();
}

}  // namespace ingot
