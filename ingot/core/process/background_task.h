// BackgroundTask runs one piece of work at a time on its own thread, concurrently with the calling thread.
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

  // Starts the work on another thread. parallel_for uses no further threads there. REQUIRES: wait() was
  // called for the previous work.
  void start(std::function<void()> work);
  // Lowers the priority of the calling thread, so that it leaves most of the processor time to busy
  // threads. The work calls this on its own thread once it is not urgent any more.
  static void become_patient() noexcept;
  // Does the work on the calling thread. Its error is kept for wait(), as if it had been started.
  void run(const std::function<void()>& work);

  // Returns true if no work is in progress, also before the first start().
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
