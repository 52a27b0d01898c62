// ErrorTee copies a child's error output to the error output of this program, and keeps the end of it.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <string>
#include <thread>

namespace ingot {

// The child writes into a file in memory, not into a pipe. If this program dies, the child can therefore
// continue to write, and has the time to save its state. Output that was copied takes no memory any more.
class ErrorTee {
 public:
  static constexpr size_t kRemembered = size_t{1} << 16;  // bytes

  // kInternal error if the system refuses a file in memory.
  ErrorTee();
  ~ErrorTee();
  ErrorTee(const ErrorTee&) = delete;
  ErrorTee& operator=(const ErrorTee&) = delete;

  // The descriptor that becomes the child's standard error.
  int input() const { return fd_; }
  // Copies the rest. Returns the last bytes that were written. REQUIRES: the child has ended.
  std::string finish();

 private:
  void follow();
  void pass_on();

  int fd_ = -1;
  off_t read_ = 0, freed_ = 0;  // offsets in the file
  std::string end_;
  std::atomic<bool> is_over_ = false;
  std::thread thread_;
};

}  // namespace ingot
