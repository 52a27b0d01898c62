// The thread pool. It splits an index space into contiguous ranges, in the same way for the same thread
// count, so that every result is a function of (input, number of threads). Builds with OpenMP use its
// threads and share them with oneDNN; other builds use std::thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <exception>
#include <utility>

#ifdef INGOT_WITH_OPENMP
#include <omp.h>
#else
#include <thread>
#include <vector>
#endif

namespace ingot {

// Maximum number of threads that parallel_for uses; at least 1.
int num_threads();
// REQUIRES: n >= 1; no parallel_for is running.
void set_num_threads(int n);
// Makes parallel_for use no other threads when the calling thread calls it from now on. A thread that runs
// concurrently with the training thread calls this, so that the two do not compete for the cores.
void use_one_thread();

// Minimum number of elements per thread when the work per element is cheap.
inline constexpr int64_t kGrain = 1 << 14;

// Range i of `parts` nearly equal contiguous ranges that cover n elements.
struct Range {
  int64_t begin, end;
};
constexpr Range split_range(int64_t n, int64_t parts, int64_t i) {
  const int64_t base = n / parts, extra = n % parts;
  const int64_t begin = i * base + std::min(i, extra);
  return {begin, begin + base + (i < extra ? 1 : 0)};
}

// Calls f(thread, begin, end) once for each of at most num_threads() ranges that cover [0, n). Every range
// has at least `grain` elements unless it is the only one. Blocks until all calls have returned, then
// rethrows the first exception. Inside another parallel_for the calling thread runs f on the whole range.
template <typename F>
void parallel_ranges(int64_t n, int64_t grain, F&& f) {
  if (n <= 0) return;
  const int64_t parts = std::clamp<int64_t>(n / std::max<int64_t>(grain, 1), 1, num_threads());
#ifdef INGOT_WITH_OPENMP
  if (parts == 1 || omp_in_parallel()) {
    f(0, int64_t{0}, n);
    return;
  }
  std::exception_ptr failure;
#pragma omp parallel num_threads(static_cast <int>(parts))
  {
    // The loop covers all ranges even if OpenMP grants fewer threads.
    for (int64_t i = omp_get_thread_num(); i < parts; i += omp_get_num_threads()) {
      try {
        const Range r = split_range(n, parts, i);
        f(static_cast<int>(i), r.begin, r.end);
      } catch (...) {
#pragma omp critical(ingot_parallel_failure)
        if (!failure) failure = std::current_exception();
      }
    }
  }
  if (failure) std::rethrow_exception(failure);
#else
  if (parts == 1) {
    f(0, int64_t{0}, n);
    return;
  }
  std::vector<std::exception_ptr> failures(static_cast<size_t>(parts));
  {
    std::vector<std::jthread> threads;
    for (int64_t i = 0; i < parts; ++i)
      threads.emplace_back([&, i] {
        try {
          const Range r = split_range(n, parts, i);
          f(static_cast<int>(i), r.begin, r.end);
        } catch (...) {
          failures[static_cast<size_t>(i)] = std::current_exception();
        }
      });
  }
  for (const std::exception_ptr& failure : failures)
    if (failure) std::rethrow_exception(failure);
#endif
}

// parallel_ranges without the thread number: f(begin, end).
template <typename F>
void parallel_for(int64_t n, int64_t grain, F&& f) {
  parallel_ranges(n, grain, [&](int, int64_t begin, int64_t end) { f(begin, end); });
}

}  // namespace ingot
