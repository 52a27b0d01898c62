// What this build and this machine have of CUDA, and memory of a device. No CUDA type stands in this header.
//
// What stands in ingot::cuda is defined in builds with CUDA only: call it from
// `if constexpr (kHasCuda)`, whose branch is left out of other builds.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "ingot/core/stream.h"

namespace ingot {

#ifdef INGOT_WITH_CUDA
inline constexpr bool kHasCuda = true;
#else
inline constexpr bool kHasCuda = false;
#endif

inline constexpr const char* kNoCudaInBuild =
    "this build has no CUDA (toolkit 13.0 or newer was not found, or INGOT_CUDA=OFF)";

// In any build: why no CUDA device can train here, and the fix, in one sentence; nothing where one can.
std::optional<std::string> no_cuda_reason();
// "libx.so.1 cannot be loaded" and the fix.
std::string cannot_load(const std::string& libraries);
inline constexpr const char* kCublasLt = "libcublasLt.so.13";

namespace cuda {

struct DeviceInfo {
  std::string name;          // "NVIDIA H200"
  int major = 0, minor = 0;  // compute capability
  int multiprocessors = 0;
  size_t memory_bytes = 0, l2_bytes = 0;
};

// The devices that the driver shows; empty where there is none, and no_device_reason() then says why.
std::vector<DeviceInfo> devices();
std::string no_device_reason();
// What this thread does goes to the device from here on; it is the first at first.
void use_device(int index);
int current_device();

// The figures are the current device's and count all processes.
size_t free_memory_bytes();

// 13000 for CUDA 13.0; driver_version() is 0 where no driver is installed.
int driver_version();
int runtime_version();

enum class MemoryKind { kDevice, kPinned };

// Plain allocations, zero-filled; never during a training step. kMemory error if the driver refuses.
void* allocate(MemoryKind kind, size_t size_bytes, const std::string& what);
void release(MemoryKind kind, void* memory) noexcept;

// A stream of the current device, with Device::kCuda. kUsage error where there is no device.
Stream make_stream();

// Waits until everything that was given to the stream is done; errors of kernels surface here.
void synchronize(Stream& stream);

// A point in a stream's order. Records do not block; a stream that waits does so on the device.
class Event {
 public:
  Event();
  ~Event();
  Event(Event&& other) noexcept;
  Event& operator=(Event&&) = delete;

  void record(Stream& stream);
  void make_wait(Stream& stream) const;  // what is given to the stream from here on
  void synchronize() const;              // the calling thread
  // From `earlier` to this one, both recorded and done.
  double seconds_since(const Event& earlier) const;

 private:
  void* event_ = nullptr;
};

}  // namespace cuda
}  // namespace ingot
