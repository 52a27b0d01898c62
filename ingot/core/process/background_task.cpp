#include "ingot/core/process/background_task.h"

#include <sys/resource.h>
#include <unistd.h>

#include <utility>

#include "ingot/core/error.h"
#include "ingot/core/parallel.h"

namespace ingot {

BackgroundTask::~BackgroundTask() {
  if (thread_.joinable()) thread_.join();
}

void BackgroundTask::record(const std::function<void()>& work) noexcept {
  try {
    work();
  } catch (...) {
    error_ = std::current_exception();
  }
  is_done_.store(true, std::memory_order_release);
}

void BackgroundTask::start(std::function<void()> work) {
  INGOT_CHECK(!thread_.joinable() && !error_, "BackgroundTask: wait() was not called for the work before");
  is_done_.store(false, std::memory_order_relaxed);
  thread_ = std::thread([this, work = std::move(work)] {
    use_one_thread();
    record(work);
  });
}

void BackgroundTask::become_patient() noexcept {
  constexpr int kNice = 10;  // a tenth of the processor time of a busy thread on the same core
  ::setpriority(PRIO_PROCESS, static_cast<id_t>(::gettid()),
                kNice);  // on Linux a thread has its own; may fail
}

void BackgroundTask::run(const std::function<void()>& work) {
  INGOT_CHECK(!thread_.joinable() && !error_, "BackgroundTask: wait() was not called for the work before");
  record(work);
}

void BackgroundTask::wait() {
  if (thread_.joinable()) thread_.join();
  if (const std::exception_ptr error = std::exchange(error_, nullptr)) std::rethrow_exception(error);
}

}  // namespace ingot
