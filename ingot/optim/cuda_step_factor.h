// The factor by which an update on a CUDA device multiplies gradients: a number of the host, times one
// that the device may have computed itself (RuleStep). For .cu files only.
#pragma once

#include "ingot/core/cuda/cuda_kernel.h"

namespace ingot::cuda {

struct StepFactor {
  float fixed = 1;
  const float* on_device = nullptr;  // or null

  __device__ __forceinline__ float of_device() const { return on_device ? *on_device : 1.0f; }
  __device__ __forceinline__ float value() const { return fixed * of_device(); }
  // True if the step changes nothing (RuleStep::factor).
  __device__ __forceinline__ bool leaves_out() const { return on_device && *on_device != *on_device; }
};

inline StepFactor step_factor(float fixed, const Tensor& factor) { return {fixed, optional<float>(factor)}; }

}  // namespace ingot::cuda
