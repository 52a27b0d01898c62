// The version of this program and the commit that it was built from.
#pragma once

#include <optional>
#include <string>

namespace ingot {

struct BuildInfo {
  std::string version;              // "0.1.0"
  std::string commit;               // 40 hexadecimal digits; "unknown" outside a git checkout
  std::optional<bool> is_modified;  // true if files differed from that commit; nullopt if unknown

  // "0.1.0 (commit 1a2b3c4d5e6f, modified)"
  std::string text() const;
};

// Defined in a file that the build generates (cmake/IngotBuildInfo.cmake).
BuildInfo program_build();

}  // namespace ingot
