#include "ingot/ops/bf16_masters.h"

#include "ingot/core/cuda/cuda_elementwise.h"
#include "ingot/ops/bf16_tail.h"

namespace ingot::cuda {
namespace {

// One element per thread: only checkpoints and the start of a run call these kernels, training steps do not.
struct Expand {
  float* numbers;
  const bf16* w;
  const uint16_t* tail;

  __device__ void operator()(int64_t i) const {
    numbers[i] = tail ? join_tail(w[i], tail[i]) : static_cast<float>(w[i]);
  }
};

struct Collapse {
  bf16* w;
  uint16_t* tail;
  float* numbers;

  __device__ void operator()(int64_t i) const {
    if (tail)
      split_tail(w[i], tail[i], numbers[i]);
    else
      w[i] = bf16(numbers[i]);
    numbers[i] = 0;
  }
};

}  // namespace

void expand_masters(const Tensor& numbers, const Tensor& w, const Tensor& tail, Stream& stream) {
  launch_elementwise<1>(w.elements(), "expand_masters", stream,
                        Expand{numbers.as<float>(), w.as<bf16>(), optional<uint16_t>(tail)});
}

void collapse_masters(const Tensor& w, const Tensor& tail, const Tensor& numbers, Stream& stream) {
  launch_elementwise<1>(w.elements(), "collapse_masters", stream,
                        Collapse{w.as<bf16>(), optional<uint16_t>(tail), numbers.as<float>()});
}

}  // namespace ingot::cuda
