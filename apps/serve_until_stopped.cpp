#include "apps/serve_until_stopped.h"

#include <atomic>
#include <chrono>
#include <exception>
#include <thread>

namespace ingot {

void serve_until_stopped(const StopSignals& signals, const std::function<void()>& serve,
                         const std::function<void()>& stop) {
  std::atomic<bool> is_over = false;
  std::exception_ptr failure;
  std::thread stopper([&] {
    while (!signals.is_stop_requested() && !is_over)
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    stop();
  });
  try {
    serve();
  } catch (...) {
    failure = std::current_exception();
  }
  is_over = true;
  stopper.join();
  if (failure) std::rethrow_exception(failure);
}

}  // namespace ingot
