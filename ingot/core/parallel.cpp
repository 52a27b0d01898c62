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
void use_one_thread() { omp_set_num_threads(1); }  // OpenMP keeps this number for each thread
#else
namespace {
std::atomic<int> thread_limit{0};  // number of threads, process-wide; 0: as many as the machine has
thread_local bool is_alone = false;
}  // namespace
void use_one_thread() { is_alone = true; }
int num_threads() {
  if (is_alone) return 1;
  const int limit = thread_limit.load();
  return limit > 0 ? limit : std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}
void set_num_threads(int n) {
  INGOT_CHECK(n >= 1, "set_num_threads: at least 1, got {}", n);
  thread_limit.store(n);
}
#endif

}  // namespace ingot
