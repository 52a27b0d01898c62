// ErrorTee passes a child's error output on to this program's and remembers the end of it.
#pragma once

#include <string>
#include <thread>

namespace ingot {

class ErrorTee {
 public:
  static constexpr size_t kRemembered = size_t{1} << 16;  // bytes

  // kInternal error if the system refuses a pipe.
  ErrorTee();
  ~ErrorTee();
  ErrorTee(const ErrorTee&) = delete;
  ErrorTee& operator=(const ErrorTee&) = delete;

  // The descriptor that becomes the child's standard error. close_input() is called once the child has it.
  int input() const { return write_fd_; }
  void close_input();
  // Waits until all processes that write here have ended. Returns the last bytes that they wrote.
  std::string finish();

 private:
  void pass_on();

  int read_fd_ = -1, write_fd_ = -1;
  std::string end_;
  std::thread thread_;
};

}  // namespace ingot
