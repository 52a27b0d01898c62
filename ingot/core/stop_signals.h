// StopSignals: SIGINT, SIGTERM, SIGHUP and SIGUSR1 ask a program to end when it is ready to; a second one
// ends it at once.
//
// The signals are blocked in every thread and a thread of their own waits for them, so that no computing
// thread is ever interrupted by one: oneDNN before 3.11.2 points the stack pointer of a computing thread into
// the heap, where a handler's frame destroys memory (core/signal_stack.h).
#pragma once

#include <atomic>
#include <csignal>
#include <functional>
#include <thread>

namespace ingot {

class StopSignals {
 public:
  // REQUIRES: constructed before the program starts another thread: threads inherit the blocked signals.
  // SIGHUP stays ignored where the program was started so (nohup). SIGPIPE is ignored from now on: writing to
  // a closed pipe is an error like another. acknowledge: called once on the waiting thread, with the name of
  // the first signal ("SIGINT"), after is_told_to_end() has become true; it must not throw.
  explicit StopSignals(std::function<void(const char* name)> acknowledge);
  // The signals have their old effect again.
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  const std::atomic<bool>& is_told_to_end() const { return is_told_to_end_; }

 private:
  void wait();

  std::function<void(const char*)> acknowledge_;
  sigset_t signals_{}, old_mask_{};
  std::atomic<bool> is_told_to_end_ = false, is_over_ = false;
  std::thread thread_;
};

}  // namespace ingot
