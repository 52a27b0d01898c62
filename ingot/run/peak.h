// Measures the machine's peak rate of matrix products, the denominator of MFU.
#pragma once

#include "ingot/core/stream.h"
#include "ingot/core/tensor.h"

namespace ingot {

// ProductPeak measures the rate of large square products in this dtype, of a matrix of random numbers with
// itself. On a CPU it takes the best observed rate. On a GPU it takes the median by the GPU's own events,
// because the GPU's clock falls under the load of a run. One measurement of a tenth of a second can be off by
// a third (a cold processor, another busy process); the best of half a second is stable.
class ProductPeak {
 public:
  explicit ProductPeak(DType dtype, Device device = Device::kCpu, bool is_tf32 = false)
      : dtype_(dtype), device_(device), is_tf32_(is_tf32) {}

  // Repeats products for about time_s, at least three times. On a CPU the size grows until one product
  // takes half a millisecond; that size and twice that size take half of the time each. Throws a kMemory
  // error if there is no room for two matrices.
  void measure(double time_s);

  double measured_s() const { return measured_s_; }
  double gflops() const { return gflops_; }  // 0 before the first measurement

 private:
  // Repeats products of one size and returns the best time of one, in seconds.
  double repeat(int64_t size, double time_s);
  struct Operands {
    Tensor a, c;  // (size, size)
  };
  double repeat_on_device(const Operands& at, double time_s, Stream& stream);  // returns the median

  DType dtype_;
  Device device_;
  bool is_tf32_;
  int64_t size_ = 0;
  double measured_s_ = 0, gflops_ = 0;
};

}  // namespace ingot
