// BackgroundTask runs one piece of work at a time beside the calling thread, on a thread of its own.
//
// One thread calls start, run and wait; any thread may call is_done.
#pragma once

#include <atomic>
#include <exception>
#include <functional>
#include <thread>

namespace ingot {

class BackgroundTask {
 public:
  BackgroundTask() = default;
  ~BackgroundTask();  // waits for the work and ignores its error
  BackgroundTask(const BackgroundTask&) = delete;
  BackgroundTask& operator=(const BackgroundTask&) = delete;

  // Starts the work on another thread, on which parallel_for uses no others. REQUIRES: wait() was called for the work before it.
  void start(std::function<void()> work);
  // Called by work that was started, when it is not urgent any more: its thread then leaves the cores to the others
  // as long as they are busy.
  static void become_patient() noexcept;
  // Does the work on the calling thread. Its error is kept for wait(), as if it had been started.
  void run(const std::function<void()>& work);

  // Returns true if no work is under way, also before the first one.
  bool is_done() const { return is_done_.load(std::memory_order_acquire); }
  // Blocks until the work has ended and throws the exception that ended it, if there was one.
  void wait();

 private:
  void record(const std::function<void()>& work) noexcept;

  std::thread thread_;
  std::exception_ptr error_;
  std::atomic<bool> is_done_ = true;
};

}  // namespace ingot
