// The part of the interface to devices that needs no header of CUDA: it says why no device can be used, and
// counts the calls that give devices work.
#include <dlfcn.h>

#include <array>
#include <atomic>

#include "ingot/core/cuda/cuda_device.h"

namespace ingot {

std::string cannot_load(const std::string& libraries) {
  return libraries + " cannot be loaded: put the folder with it in LD_LIBRARY_PATH";
}

std::optional<std::string> no_cuda_reason() {
  if constexpr (kHasCuda) {
    if (const std::string reason = cuda::no_device_reason(); !reason.empty())
      return "no GPU can be used: " + reason +
             ". With an NVIDIA GPU, install its driver (580 or newer for CUDA 13)";
    void* products = dlopen(kCublasLt, RTLD_LAZY | RTLD_LOCAL);
    if (!products) return cannot_load(kCublasLt);
    dlclose(products);
    return std::nullopt;
  }
  return kNoCudaInBuild;
}

Stream make_stream(Device device) {
  if (device == Device::kCpu) return {};
  if constexpr (kHasCuda) return cuda::make_stream();
  fail(ErrorKind::kUsage, "CUDA: {}", kNoCudaInBuild);
}

namespace cuda {
namespace {

std::array<std::atomic<int64_t>, 4> launches;  // by LaunchKind

}  // namespace

LaunchCounts launch_counts() {
  const auto count = [](LaunchKind kind) { return launches[static_cast<size_t>(kind)].load(); };
  return {.kernels = count(LaunchKind::kKernel),
          .libraries = count(LaunchKind::kLibrary),
          .copies = count(LaunchKind::kCopy),
          .graphs = count(LaunchKind::kGraph)};
}

void count_launch(LaunchKind kind) {
  launches[static_cast<size_t>(kind)].fetch_add(1, std::memory_order_relaxed);
}

}  // namespace cuda
}  // namespace ingot
