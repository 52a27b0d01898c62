// CUDA without CUDA types: queries about this build and this machine, device memory, streams and events.
//
// The functions in ingot::cuda are defined only in builds with CUDA. Call them from `if constexpr
// (kHasCuda)`, which other builds discard.
#pragma once

#include <cstddef>
#include <cstdint>
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
    "this build has no CUDA (toolkit 13.0 or newer was not found, or INGOT_CUDA=OFF); "
    "`INGOT_CUDA=ON tools/build.sh release` builds one that has";

// Says in one sentence why no CUDA device can train here, and how to fix it; nullopt if one can. Works in
// any build.
std::optional<std::string> no_cuda_reason();
// Returns "libx.so.1 cannot be loaded" and how to fix it.
std::string cannot_load(const std::string& libraries);
inline constexpr const char* kCublasLt = "libcublasLt.so.13";

namespace cuda {

struct DeviceInfo {
  std::string name;          // "NVIDIA H200"
  int major = 0, minor = 0;  // compute capability
  int multiprocessors = 0;
  size_t memory_bytes = 0;
  std::string bus;  // PCI address, "0000:17:00.0"
};

// The devices that the driver reports. If there are none, no_device_reason() says why; otherwise it is "".
std::vector<DeviceInfo> devices();
std::string no_device_reason();
// Makes the device current for the calling thread. Each thread starts with device 0.
void use_device(int index);
int current_device();
// PCI bus of the current device, "0000:17:00.0"; it names the device in every process.
std::string device_bus();

// Free memory of the current device, whichever process uses the rest.
size_t free_memory_bytes();
// Shared memory that a block may have at most on the current device: 227 KiB on Hopper.
size_t most_shared_bytes();

// The calls by which this process has given devices work. The calls of an operation that a graph captures
// count when they are captured; a launch of the graph is one call.
struct LaunchCounts {
  int64_t kernels = 0;    // launches of Ingot's own kernels
  int64_t libraries = 0;  // operations of cuBLASLt, cuDNN and NCCL, each of which may launch several kernels
  int64_t copies = 0;     // copies and fills
  int64_t graphs = 0;     // launches of graphs
};
LaunchCounts launch_counts();
enum class LaunchKind { kKernel, kLibrary, kCopy, kGraph };
void count_launch(LaunchKind kind);  // thread-safe

// 13000 stands for CUDA 13.0. driver_version() is 0 if no driver is installed.
int driver_version();
int runtime_version();

enum class MemoryKind { kDevice, kPinned };

// Allocates zero-filled memory. Not for use during a training step. kMemory error if the driver refuses.
void* allocate(MemoryKind kind, size_t size_bytes, const std::string& what);
void release(MemoryKind kind, void* memory) noexcept;

// Creates a stream of the current device, with Device::kCuda. kUsage error if there is no device.
Stream make_stream();
// The same, with the highest priority that the device has: its kernels start before those that wait in other
// streams.
Stream make_priority_stream();

// Blocks until all work submitted to the stream is done. Throws the errors of kernels that failed.
void synchronize(Stream& stream);

// Event: a point in a stream's order. record() does not block; a stream that waits for an event waits on
// the device.
class Event {
 public:
  Event();
  ~Event();
  Event(Event&& other) noexcept;
  Event& operator=(Event&&) = delete;

  void record(Stream& stream);
  void make_wait(Stream& stream) const;  // holds back what is submitted to the stream from now on
  void synchronize() const;              // blocks the calling thread
  // Time from `earlier` to this event. REQUIRES: both are recorded and done.
  double seconds_since(const Event& earlier) const;

 private:
  void* event_ = nullptr;
};

}  // namespace cuda
}  // namespace ingot
