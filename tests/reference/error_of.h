// Returns the message of the Error that a call throws, for tests of what is refused.
#pragma once

#include <gmock/gmock.h>

#include <optional>
#include <string>
#include <vector>

#include "ingot/core/error.h"

namespace ingot {

// Returns the message of the Error that `call` throws, or "no error"; the error must be of the given kind.
template <typename Call>
std::string error_of(const Call& call, std::optional<ErrorKind> kind = std::nullopt) {
  try {
    call();
  } catch (const Error& error) {
    if (kind) {
      EXPECT_EQ(error.kind(), *kind) << error.what();
    }
    return error.what();
  }
  return "no error";
}
template <typename Call>
std::string usage_error(const Call& call) {
  return error_of(call, ErrorKind::kUsage);
}
template <typename Call>
std::string data_error(const Call& call) {
  return error_of(call, ErrorKind::kData);
}

// Expects an error of the kind whose message has every part.
template <typename Call>
void expect_error(ErrorKind kind, const Call& call, const std::vector<std::string>& parts) {
  const std::string message = error_of(call, kind);
  EXPECT_NE(message, "no error");
  for (const std::string& part : parts) EXPECT_THAT(message, testing::HasSubstr(part));
}

}  // namespace ingot
