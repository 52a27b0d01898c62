// Stream: the order in which operations run on a device, and what library handles belong to that order.
// On the CPU every operation has finished when its call returns.
#pragma once

#include <memory>

#include "ingot/core/arena.h"
#include "ingot/core/tensor.h"
#include "ingot/core/trace.h"

namespace ingot {

// A library's handle or cache that lives as long as the stream (matrix-product primitives, for one).
class StreamResource {
 public:
  virtual ~StreamResource() = default;
};

struct Stream {
  Device device = Device::kCpu;
  Backing backing = Backing::kMemory;     // for arenas of this stream; with kAddresses nothing may run on it
  Trace* trace = nullptr;                 // borrowed; null: not traced
  std::unique_ptr<StreamResource> queue;  // the CUDA stream (core/cuda/cuda_device.h)
  std::unique_ptr<StreamResource> matmul_primitives;  // made by ops/matmul at first use
  std::unique_ptr<StreamResource> matmul_panels;      // likewise
};

// A stream of the device. kUsage error where there is none, naming what is missing.
Stream make_stream(Device device);

}  // namespace ingot
