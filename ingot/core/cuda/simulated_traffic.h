// Counts the bytes that the loads and stores of cuda_kernel.h move to and from global memory, in the
// simulation only. There the kernels are compiled as C++ and run on one thread.
#pragma once

#include <cstdint>

namespace ingot::cuda {

#ifdef __CUDACC__
__device__ __forceinline__ void count_read(int64_t) {}
__device__ __forceinline__ void count_written(int64_t) {}
#else
struct SimulatedTraffic {
  int64_t read_bytes = 0, written_bytes = 0;
};
inline SimulatedTraffic simulated_traffic;
// The counters are the simulation's own, so its checker of races does not look at them.
__attribute__((no_sanitize_thread, noinline)) inline void count_read(int64_t size_bytes) {
  simulated_traffic.read_bytes += size_bytes;
}
__attribute__((no_sanitize_thread, noinline)) inline void count_written(int64_t size_bytes) {
  simulated_traffic.written_bytes += size_bytes;
}
#endif

}  // namespace ingot::cuda
