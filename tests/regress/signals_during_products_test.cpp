// Seen: in its AVX-512 and AVX2 kernels for f32 products, oneDNN before 3.11.2 uses the stack pointer as
// an address in the heap (uxlfoundation/oneDNN#4845). Linux wrote a signal's frame there, so runs died
// of "corrupted size vs. prev_size" or trained on with wrong numbers. Wanted: a signal whose handler
// uses an alternate stack, as a profiler installs it, may reach any thread at any moment.
#include <dirent.h>
#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <numeric>
#include <thread>
#include <vector>

#include "ingot/core/parallel.h"
#include "ingot/core/process/signal_stack.h"
#include "ingot/ops/matmul.h"
#include "tests/train/small_training.h"

namespace ingot {
namespace {

std::atomic<int> profiler_signals{0};

// The handler uses some stack, as a profiler that walks the caller's frames does.
void profiler_handler(int) {
  std::array<volatile char, 2048> frames;
  for (volatile char& byte : frames) byte = 0x5a;
  profiler_signals.fetch_add(1);
}

std::vector<pid_t> threads_of_this_process() {
  std::vector<pid_t> threads;
  DIR* folder = ::opendir("/proc/self/task");
  if (!folder) return threads;
  while (const dirent* entry = ::readdir(folder))
    if (const int id = std::atoi(entry->d_name); id > 0) threads.push_back(id);
  ::closedir(folder);
  return threads;
}

// While it lives, sends a signal every 200 us to each thread of the process in turn, except its own.
class ProfilerSignals {
 public:
  ProfilerSignals() {
    struct sigaction action {};
    action.sa_handler = profiler_handler;
    action.sa_flags = SA_ONSTACK | SA_RESTART;
    sigaction(SIGPROF, &action, &old_);
    thread_ = std::jthread([](const std::stop_token& stop) { send(stop); });
  }
  ~ProfilerSignals() {
    thread_.request_stop();
    thread_.join();
    std::this_thread::sleep_for(std::chrono::milliseconds(20));  // waits for the last signals to arrive
    sigaction(SIGPROF, &old_, nullptr);
  }

 private:
  static void send(const std::stop_token& stop) {
    const auto self = static_cast<pid_t>(::syscall(SYS_gettid));
    auto next = std::chrono::steady_clock::now();
    while (!stop.stop_requested())
      for (const pid_t thread : threads_of_this_process()) {
        if (thread == self) continue;
        ::syscall(SYS_tgkill, ::getpid(), thread, SIGPROF);
        next += std::chrono::microseconds(200);
        std::this_thread::sleep_until(next);
      }
  }

  struct sigaction old_ {};
  std::jthread thread_;
};

RunConfig f32_run() {
  return small_config({"model.layers=2", "model.width=64", "model.context=64", "precision.compute=f32"});
}

TEST(SignalsDuringProducts, TenThousandSignalsLeaveTheLossesOfAnF32RunUnchanged) {
  constexpr int kSignals = 10'000;
  const int threads = num_threads();
  set_num_threads(2);
  std::vector<double> losses;
  profiler_signals = 0;
  {
    SmallTraining training(f32_run());
    const ProfilerSignals signals;
    while (profiler_signals < kSignals) losses.push_back(training.steps(1).loss);
  }
  SmallTraining undisturbed(f32_run());
  for (size_t i = 0; i < losses.size(); ++i) ASSERT_EQ(undisturbed.steps(1).loss, losses[i]) << "step " << i;
  set_num_threads(threads);
}

// Returns the sum over the elements of each product, for every form and for shapes that the library
// tiles in different ways.
std::vector<double> signal_test_products() {
  std::vector<double> sums;
  Stream stream;
  for (const MatmulForm form : {MatmulForm::kNT, MatmulForm::kNN, MatmulForm::kTN})
    for (const int64_t M : {64, 65, 256})
      for (const int64_t N : {64, 100, 256})
        for (const int64_t K : {64, 256, 1023}) {
          std::vector<float> a(static_cast<size_t>(M * K), 0.5f), b(static_cast<size_t>(N * K), 0.25f);
          std::vector<float> c(static_cast<size_t>(M * N));
          a[3] = b[5] = 7;
          const Shape a_shape = form == MatmulForm::kTN ? Shape{K, M} : Shape{M, K};
          const Shape b_shape = form == MatmulForm::kNT ? Shape{N, K} : Shape{K, N};
          matmul(Tensor(c.data(), DType::f32, {M, N}), Tensor(a.data(), DType::f32, a_shape),
                 Tensor(b.data(), DType::f32, b_shape), form, false, stream);
          sums.push_back(std::accumulate(c.begin(), c.end(), 0.0));
        }
  return sums;
}

// Without the alternate stacks the allocator aborts the program, or the numbers change.
TEST(SignalsDuringProducts, ProductsOfManyShapesAreUnchanged) {
  const int threads = num_threads();
  for (const int n : {1, 2}) {
    set_num_threads(n);
    const std::vector<double> want = signal_test_products();
    const ProfilerSignals signals;
    profiler_signals = 0;
    while (profiler_signals < 1000) ASSERT_EQ(signal_test_products(), want);
  }
  set_num_threads(threads);
}

// OpenMP ends and starts threads when the size of its team changes.
TEST(SignalsDuringProducts, EveryThreadOfThePoolHasAnAlternateStack) {
#ifndef INGOT_WITH_OPENMP
  GTEST_SKIP() << "without OpenMP there is no pool: regions start threads of their own";
#endif
  const int threads = num_threads();
  for (const int n : {4, 2, 4}) {
    set_num_threads(n);
    use_signal_stacks_in_pool();
    std::atomic<int> with_stack{0};
    parallel_ranges(n, 1, [&](int, int64_t, int64_t) {
      stack_t stack{};
      if (sigaltstack(nullptr, &stack) == 0 && (stack.ss_flags & SS_DISABLE) == 0) ++with_stack;
    });
    EXPECT_EQ(with_stack, n);
  }
  set_num_threads(threads);
}

}  // namespace
}  // namespace ingot
