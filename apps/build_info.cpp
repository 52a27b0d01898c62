#include "apps/build_info.h"

namespace ingot {

std::string BuildInfo::text() const {
  constexpr size_t kShortCommit = 12;
  std::string text = version + " (commit " + commit.substr(0, kShortCommit);
  if (is_modified.value_or(false)) text += ", modified";
  return text + ")";
}

}  // namespace ingot
