// The wrapper of the CUDA runtime: checked calls and launches. For .cu files and files that speak to CUDA
// libraries; no other header includes it.
#pragma once

#include <cuda_runtime.h>

#include <utility>

#include "ingot/core/stream.h"

namespace ingot::cuda {

// Throws with the text of the call unless it succeeded.
void check(cudaError_t error, const char* call);

// REQUIRES: a stream from make_stream.
cudaStream_t queue_of(const Stream& stream);

// What a launch needs to know beside its kernel.
struct Launch {
  Stream& stream;
  const char* name;  // for errors
  dim3 grid, block;
};

// Gives the kernel to the stream. The kernel's own errors surface at the next synchronize.
template <typename... Params, typename... Args>
void launch(const Launch& what, void (*kernel)(Params...), Args&&... args) {
  if (what.grid.x == 0 || what.grid.y == 0) return;
  cudaLaunchConfig_t config{};
  config.gridDim = what.grid;
  config.blockDim = what.block;
  config.stream = queue_of(what.stream);
  check(cudaLaunchKernelEx(&config, kernel, std::forward<Args>(args)...), what.name);
}

}  // namespace ingot::cuda

#define INGOT_CUDA_CHECK(call) ::ingot::cuda::check((call), #call)
