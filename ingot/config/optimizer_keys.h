// Defines the keys of [optimizer] and of its groups. Each [[optimizer.group]] overrides some of these
// keys for some of the parameters; it has the same keys and three of its own (roles, match, lr_scale).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "ingot/config/config_keys.h"

namespace ingot {

inline constexpr std::string_view kOptimizerGroup = "optimizer.group";

void add_optimizer_keys(std::vector<ConfigKey>& keys);

// Returns the keys "optimizer.group.lr" etc.; they set the last group of the RunConfig. Immutable.
const std::vector<ConfigKey>& optimizer_group_keys();
const ConfigKey* find_optimizer_group_key(std::string_view name);  // null if there is no such key
std::vector<std::string> optimizer_group_key_names();

// Writes the groups as [[optimizer.group]] sections, with every key that was given.
std::string optimizer_groups_toml(const OptimizerConfig& optimizer);
// Returns the groups as a TOML value, which --set optimizer.group=... takes: "[{roles = [\"matrix\"], kind =
// \"muon\"}]".
std::string optimizer_groups_value(const OptimizerConfig& optimizer);

}  // namespace ingot
