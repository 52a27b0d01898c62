#include "ingot/optim/parameter_groups.h"

#include <algorithm>

#include "ingot/core/error.h"

namespace ingot {

bool matches(std::string_view pattern, std::string_view name) {
  // Greedy matching with one backtracking point: the last *, which then takes one more character.
  size_t p = 0, n = 0, star = std::string_view::npos, after_star = 0;
  while (n < name.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      after_star = n;
    } else if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == name[n])) {
      ++p;
      ++n;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      n = ++after_star;
    } else {
      return false;
    }
  }
  return pattern.find_first_not_of('*', p) == std::string_view::npos;
}

std::vector<int> assign_groups(const std::vector<GroupConfig>& groups,
                               const std::vector<OptimParam>& params) {
  for (size_t i = 0; i < groups.size(); ++i)
    for (const std::string& pattern : groups[i].match)
      if (std::none_of(params.begin(), params.end(),
                       [&](const OptimParam& p) { return matches(pattern, p.name); }))
        fail(
            ErrorKind::kUsage,
            "optimizer.group {}: match \"{}\" fits no parameter; names are like \"{}\", and * stands for any "
            "characters",
            i + 1, pattern, params.empty() ? "" : params.back().name);
  std::vector<int> assigned;
  for (const OptimParam& p : params) {
    const auto takes = [&](const GroupConfig& group) {
      const bool has_role = group.roles.empty() ||
                            std::find(group.roles.begin(), group.roles.end(), p.role) != group.roles.end();
      const bool has_name =
          group.match.empty() || std::any_of(group.match.begin(), group.match.end(),
                                             [&](const std::string& m) { return matches(m, p.name); });
      return has_role && has_name;
    };
    const auto found = std::find_if(groups.begin(), groups.end(), takes);
    assigned.push_back(found == groups.end() ? -1 : static_cast<int>(found - groups.begin()));
  }
  return assigned;
}

std::string_view role_name(ParamRole role) {
  switch (role) {
    case ParamRole::kEmbedding:
      return "embedding";
    case ParamRole::kPosition:
      return "position";
    case ParamRole::kMatrix:
      return "matrix";
    case ParamRole::kHead:
      return "head";
    case ParamRole::kNorm:
      return "norm";
    case ParamRole::kBias:
      return "bias";
    case ParamRole::kScalar:
      return "scalar";
  }
  return "?";
}

}  // namespace ingot
