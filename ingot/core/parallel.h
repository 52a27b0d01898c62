// The one thread pool: contiguous ranges of an index space, split the same way for the same thread count,
// so that every result is a function of (input, number of threads). OpenMP where built with it (the pool
// is then shared with oneDNN), std::thread otherwise.
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

// Threads that parallel_for uses at most; at least 1.
int num_threads();
// REQUIRES: n >= 1. Not while a parallel_for runs.
void set_num_threads(int n);

// Elements of cheap work that a thread takes at least.
inline constexpr int64_t kGrain = 1 << 14;

// Range i of n elements cut into `parts` nearly equal contiguous ranges.
struct Range {
  int64_t begin, end;
};
constexpr Range split_range(int64_t n, int64_t parts, int64_t i) {
  const int64_t base = n / parts, extra = n % parts;
  const int64_t begin = i * base + std::min(i, extra);
  return {begin, begin + base + (i < extra ? 1 : 0)};
}

// Calls f(thread, begin, end) once for each of the at most num_threads() ranges that cover [0, n), each of
// at least `grain` elements (but the only one). Blocks until all are done; the first exception is rethrown.
// Inside another parallel_for it runs f on the calling thread alone.
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
    // A pool that grants fewer threads still covers all ranges.
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
