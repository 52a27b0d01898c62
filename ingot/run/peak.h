// The machine's measured ceiling for matrix products: what MFU is a fraction of.
#pragma once

#include "ingot/core/tensor.h"

namespace ingot {

// The best rate seen of large square products in this dtype on the device. One measurement of a tenth of a
// second can be off by a third (a cold processor, a busy neighbour); the best of half a second is steady.
class ProductPeak {
 public:
  explicit ProductPeak(DType dtype, Device device = Device::kCpu, bool is_tf32 = false)
      : dtype_(dtype), device_(device), is_tf32_(is_tf32) {}

  // Repeats products for about time_s, three at least. On a CPU they grow until one of them takes half a
  // millisecond, and that size and twice that size share the time. kMemory error if there is no room for
  // three matrices.
  void measure(double time_s);

  double measured_s() const { return measured_s_; }
  double gflops() const { return gflops_; }  // 0 before the first measurement

 private:
  // Products of one size; returns the best time of one, in seconds.
  double repeat(int64_t size, double time_s);

  DType dtype_;
  Device device_;
  bool is_tf32_;
  int64_t size_ = 0;
  double measured_s_ = 0, gflops_ = 0;
};

}  // namespace ingot
