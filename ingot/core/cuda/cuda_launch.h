// Checked calls and kernel launches of the CUDA runtime. Included by .cu files and by files that call
// CUDA libraries; no other header includes it.
#pragma once

#include <cuda_runtime.h>

#include <utility>

#include "ingot/core/cuda/cuda_device.h"
#include "ingot/core/error.h"
#include "ingot/core/stream.h"

namespace ingot::cuda {

// Throws an error with the text of the call unless it succeeded.
void check(cudaError_t error, const char* call);

// The CUDA stream behind a Stream. REQUIRES: `stream` comes from make_stream.
cudaStream_t queue_of(const Stream& stream);

inline constexpr unsigned kMaxGridY = 65535;
// A kernel needs cudaFuncSetAttribute before its blocks may have more dynamic shared memory than this.
inline constexpr size_t kPlainSharedBytes = 48 << 10;

// The configuration of a kernel launch.
struct Launch {
  Stream& stream;
  const char* name;  // for error messages
  dim3 grid, block;
  size_t shared_bytes = 0;  // dynamic shared memory of a block; at most most_shared_bytes()
};

// Launches the kernel on the stream. Errors of the kernel itself surface at the next synchronize().
template <typename... Params, typename... Args>
void launch(const Launch& what, void (*kernel)(Params...), Args&&... args) {
  if (what.grid.x == 0 || what.grid.y == 0) return;
  INGOT_CHECK(what.grid.y <= kMaxGridY, "{}: {} blocks along y, where CUDA launches at most {}", what.name,
              what.grid.y, kMaxGridY);
  cudaLaunchConfig_t config{};
  config.gridDim = what.grid;
  config.blockDim = what.block;
  config.dynamicSmemBytes = what.shared_bytes;
  config.stream = queue_of(what.stream);
  if (what.shared_bytes > kPlainSharedBytes)
    check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                               static_cast<int>(what.shared_bytes)),
          what.name);
  count_launch(LaunchKind::kKernel);
  check(cudaLaunchKernelEx(&config, kernel, std::forward<Args>(args)...), what.name);
}

}  // namespace ingot::cuda

#define INGOT_CUDA_CHECK(call) ::ingot::cuda::check((call), #call)
