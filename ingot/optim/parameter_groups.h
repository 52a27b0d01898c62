// Assignment of parameters to groups.
#pragma once

#include <string_view>
#include <vector>

#include "ingot/optim/optimizer_config.h"
#include "ingot/optim/rule.h"

namespace ingot {

// Returns true if the whole name matches the pattern: * stands for any characters, ? for one.
bool matches(std::string_view pattern, std::string_view name);

// Returns for each parameter the index of the first group that matches it, or -1 for the base. Throws a
// kUsage error that names the pattern if one matches no parameter.
std::vector<int> assign_groups(const std::vector<GroupConfig>& groups, const std::vector<OptimParam>& params);

// The name of a role in configurations, such as "matrix".
std::string_view role_name(ParamRole role);

}  // namespace ingot
