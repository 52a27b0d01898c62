// Stream: an ordered queue of operations on a device, and the library handles that belong to it. On the
// CPU every operation has finished when its call returns.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "ingot/core/arena.h"
#include "ingot/core/tensor.h"
#include "ingot/core/trace.h"

namespace ingot {

class WorkLog;

// A library's handle or cache that lives as long as the stream, such as matrix-product primitives.
class StreamResource {
 public:
  virtual ~StreamResource() = default;
};

// GraphHooks holds callbacks that the host runs when the capture of a CUDA graph ends and after its launches
// (core/cuda/cuda_graph.h).
struct GraphHooks {
  std::vector<std::function<void()>> at_end;     // when the capture ends, also by an exception
  std::vector<std::function<void()>> at_launch;  // after every launch
};

struct Stream {
  Device device = Device::kCpu;
  Backing backing =
      Backing::kMemory;     // backing of this stream's arenas; with kAddresses operations compute nothing
  Trace* trace = nullptr;   // borrowed; null if spans are not recorded
  WorkLog* work = nullptr;  // borrowed; null if the operations' work is not recorded (core/work.h)
  GraphHooks* graph =
      nullptr;  // borrowed; the graph that records the work instead of the device doing it, or null
  std::unique_ptr<StreamResource> queue;              // the CUDA stream (core/cuda/cuda_device.h)
  std::unique_ptr<StreamResource> matmul_primitives;  // created by ops/matmul at first use
  std::unique_ptr<StreamResource> matmul_panels;      // created by ops/matmul at first use
};

// Creates a stream of the device. kUsage error that says what is missing if there is no such device.
Stream make_stream(Device device);

}  // namespace ingot
