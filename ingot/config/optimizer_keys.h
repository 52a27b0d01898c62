// The keys of [optimizer], and those of its groups: each [[optimizer.group]] says for some parameters what
// they do otherwise, with the same keys and three of its own (roles, match, lr_scale).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "ingot/config/config_keys.h"

namespace ingot {

inline constexpr std::string_view kOptimizerGroup = "optimizer.group";

void add_optimizer_keys(std::vector<ConfigKey>& keys);

// "optimizer.group.lr" and so on; they set the last group of the RunConfig. Immutable.
const std::vector<ConfigKey>& optimizer_group_keys();
const ConfigKey* find_optimizer_group_key(std::string_view name);  // null: no such key
std::vector<std::string> optimizer_group_key_names();

// The groups as [[optimizer.group]] sections, every given key written.
std::string optimizer_groups_toml(const OptimizerConfig& optimizer);

}  // namespace ingot
