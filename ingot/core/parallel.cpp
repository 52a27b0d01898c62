#include "ingot/core/parallel.h"

#include "ingot/core/error.h"

#ifndef INGOT_WITH_OPENMP
#include <atomic>
#endif

namespace ingot {

#ifdef INGOT_WITH_OPENMP
int num_threads() { return omp_get_max_threads(); }
void set_num_threads(int n) {
  INGOT_CHECK(n >= 1, "set_num_threads: at least 1, got {}", n);
  omp_set_num_threads(n);
}
#else
namespace {
std::atomic<int> thread_limit{0};  // number of threads, process-wide; 0: as many as the machine has
}
int num_threads() {
  const int limit = thread_limit.load();
  return limit > 0 ? limit : std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}
void set_num_threads(int n) {
  INGOT_CHECK(n >= 1, "set_num_threads: at least 1, got {}", n);
  thread_limit.store(n);
}
#endif

}  // namespace ingot
