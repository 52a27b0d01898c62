// The one exception of Ingot, and the checks that throw it.
//
// A message says what was wrong, what was wanted and what came:
//   "rmsnorm_forward: w must be (C)=768, got (512)".
#pragma once

#include <fmt/core.h>

#include <stdexcept>
#include <string>

namespace ingot {

// What a failure means to a caller; the program turns it into its exit code (exit_code below).
enum class ErrorKind {
  kInternal,  // a broken precondition inside Ingot, or an operating system refusal
  kUsage,     // command line or configuration
  kData,      // an input file: missing, damaged, foreign, too short
  kMemory,    // does not fit, or refused before it would not
  kNumerics,  // a loss or gradient that is not finite
  kDisk,      // writing failed: full, read-only, not permitted
};

class Error : public std::runtime_error {
 public:
  explicit Error(const std::string& message, ErrorKind kind = ErrorKind::kInternal)
      : std::runtime_error(message), kind_(kind) {}
  ErrorKind kind() const { return kind_; }

 private:
  ErrorKind kind_;
};

// Process exit code of a failure: 1 internal, 2 usage, 3 data, 4 memory, 5 numerics, 6 disk.
// (0 is success and 75 "interrupted, saved, resumable"; neither is an error.)
constexpr int exit_code(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::kInternal:
      return 1;
    case ErrorKind::kUsage:
      return 2;
    case ErrorKind::kData:
      return 3;
    case ErrorKind::kMemory:
      return 4;
    case ErrorKind::kNumerics:
      return 5;
    case ErrorKind::kDisk:
      return 6;
  }
  return 1;
}

// What every fail() below comes to; it is instantiated some hundred times, this is compiled once.
[[noreturn]] void fail_formatted(ErrorKind kind, fmt::string_view format, fmt::format_args args);

// Throws Error(kind) with a formatted message.
template <typename... Args>
[[noreturn]] void fail(ErrorKind kind, fmt::format_string<Args...> format, Args&&... args) {
  fail_formatted(kind, format, fmt::make_format_args(args...));
}

}  // namespace ingot

// Always on; for preconditions at an API. The message is only formatted when the check fails.
#define INGOT_CHECK(condition, ...)                              \
  do {                                                           \
    if (!(condition)) [[unlikely]]                               \
      ::ingot::fail(::ingot::ErrorKind::kInternal, __VA_ARGS__); \
  } while (false)
