// StopSignals receives SIGINT, SIGTERM, SIGHUP and SIGUSR1. The first one asks the program to end when it
// is ready; a second one ends it at once. A signal that repeats within 0.2 s counts once. A later SIGUSR1
// has no effect, because `ingot launch` sends it again and again until its job has ended.
//
// The signals are blocked in every thread, and one dedicated thread waits for them, so that they never
// interrupt a computing thread. oneDNN before 3.11.2 points a computing thread's stack pointer into the
// heap, where a handler's frame corrupts memory (core/process/signal_stack.h).
#pragma once

#include <atomic>
#include <csignal>
#include <functional>
#include <thread>

namespace ingot {

// Blocks the signals above, so that a signal that arrives before StopSignals exists stays pending until
// then. A program that will construct StopSignals calls this first of all.
void block_stop_signals();

class StopSignals {
 public:
  // kCounts: a second signal does not end the program; the program itself looks at count().
  enum class Second { kEnds, kCounts };
  // REQUIRES: constructed before the program starts another thread, because threads inherit the blocked
  // signals. SIGHUP stays ignored if the program was started with SIGHUP ignored (nohup). SIGPIPE is ignored
  // from now on, so that writing to a closed pipe returns an ordinary error. The waiting thread calls
  // `acknowledge` once, with the name of the first signal ("SIGINT"), after is_stop_requested() has become
  // true; it must not throw.
  explicit StopSignals(std::function<void(const char* name)> acknowledge, Second second = Second::kEnds);
  // Ends the waiting thread. The signals stay blocked: the program is about to exit with its result, and a
  // signal that arrives meanwhile must not replace its exit code.
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  const std::atomic<bool>& is_stop_requested() const { return is_stop_requested_; }
  const std::atomic<int>& count() const { return count_; }

 private:
  void wait();

  std::function<void(const char*)> acknowledge_;
  sigset_t signals_;
  Second second_;
  std::atomic<bool> is_stop_requested_ = false, is_over_ = false;
  std::atomic<int> count_ = 0;
  std::thread thread_;
};

}  // namespace ingot
