// Error is the only exception type of Ingot. This header also has the checks that throw it.
//
// A message states the fault, the expected value and the value found:
//   "rmsnorm_forward: w must be (C)=768, got (512)".
#pragma once

#include <fmt/core.h>

#include <stdexcept>
#include <string>

namespace ingot {

// ErrorKind is the class of a failure. It determines the exit code of the program (exit_code below).
enum class ErrorKind {
  kInternal,  // a broken precondition inside Ingot, or a call that the operating system refused
  kUsage,     // command line or configuration
  kData,      // an input file is missing, damaged, too short or not Ingot's
  kMemory,    // memory ran out, or the request was refused because it would not fit
  kNumerics,  // a loss or gradient is not finite
  kDisk,      // writing failed: disk full, read-only or not permitted
};

class Error : public std::runtime_error {
 public:
  explicit Error(const std::string& message, ErrorKind kind = ErrorKind::kInternal)
      : std::runtime_error(message), kind_(kind) {}
  ErrorKind kind() const { return kind_; }

 private:
  ErrorKind kind_;
};

// Returns the exit code of the process after a failure: 1 internal, 2 usage, 3 data, 4 memory, 5 numerics, 6
// disk. Two further codes are not errors: 0 (success) and 75 (interrupted, saved, resumable).
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

// The common body of every fail() below. It is compiled once; fail() is instantiated some hundred times.
[[noreturn]] void fail_formatted(ErrorKind kind, fmt::string_view format, fmt::format_args args);

// Throws Error(kind) with a formatted message.
template <typename... Args>
[[noreturn]] void fail(ErrorKind kind, fmt::format_string<Args...> format, Args&&... args) {
  fail_formatted(kind, format, fmt::make_format_args(args...));
}

}  // namespace ingot

// Checks a precondition of an API, in every build. The message is formatted only if the check fails.
#define INGOT_CHECK(condition, ...)                              \
  do {                                                           \
    if (!(condition)) [[unlikely]]                               \
      ::ingot::fail(::ingot::ErrorKind::kInternal, __VA_ARGS__); \
  } while (false)
