// Maps byte strings to token ids.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace ingot {

// An open-addressing table over strings owned by the caller.
class TokenIndex {
 public:
  explicit TokenIndex(const std::vector<std::string>& tokens);  // borrowed

  static constexpr uint32_t kNone = 0xFFFFFFFFu;
  uint32_t find(std::string_view bytes) const;

 private:
  const std::vector<std::string>* tokens_;
  std::vector<uint32_t> slots_;
  size_t mask_ = 0;
};

}  // namespace ingot
