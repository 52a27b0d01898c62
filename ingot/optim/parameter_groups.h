// Which parameter is in which group.
#pragma once

#include <string_view>
#include <vector>

#include "ingot/optim/optimizer_config.h"

namespace ingot {

// True if the whole name fits the pattern: * stands for any characters, ? for one.
bool matches(std::string_view pattern, std::string_view name);

// For each parameter the index of the first group that takes it, or -1: the base. kUsage error naming a
// pattern that fits no parameter.
std::vector<int> assign_groups(const std::vector<GroupConfig>& groups, const std::vector<OptimParam>& params);

// "matrix": the name of a role in configurations.
std::string_view role_name(ParamRole role);

}  // namespace ingot
