#include "ingot/core/process/cgroups.h"

#include <fmt/core.h>

#include <fstream>

namespace ingot {
namespace fs = std::filesystem;

void visit_cgroups(const CgroupFiles& files, const std::string& controller,
                   const std::function<void(const Cgroup&)>& visit) {
  // A line is "4:memory:/user.slice" in version 1 and "0::/user.slice" in version 2.
  std::ifstream in(files.self);
  for (std::string line; std::getline(in, line);) {
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = fmt::format(",{},", line.substr(first + 1, second - first - 1));
    const bool is_version2 = controllers == ",,";
    if (!is_version2 && controllers.find(fmt::format(",{},", controller)) == std::string::npos) continue;
    const fs::path root = is_version2 ? files.root : files.root / controller;
    for (fs::path at = line.substr(second + 1);; at = at.parent_path()) {
      visit({.folder = root / at.relative_path(), .name = at.string(), .version = is_version2 ? 2 : 1});
      if (!at.has_relative_path()) break;
    }
  }
}

}  // namespace ingot
