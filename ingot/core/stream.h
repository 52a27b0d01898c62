// Stream: an ordered queue of operations on a device, and the library handles that belong to it. On the
// CPU every operation has finished when its call returns.
//
// A tensor knows its device, a stream the device that it belongs to, and an arena its memory. An op checks
// its operands and calls the kernels of their device (x.cpp calls x.cu), so layers, model and trainer are
// written once. Outside the operations, these places depend on the device:
//
//   make_stream                             creates the stream that all work of a trainer is submitted to
//   memory_of (core/arena.h)                puts all tensors of a run where the stream works
//   row_sum_parts, attention_*_scratch      size the scratch: a row per thread on the CPU, per block on a GPU
//   Transformer::bring_to_device            copies the rotary table, the one tensor that the model owns
//   LossHead::chunk                         limits the tokens per chunk of logits
//   has_bf16_logits                         decides whether the logits stay bf16 in memory
//   BuildSpec::fuses_products               lets products take their elementwise neighbours
//   train/device_feed.h                     copies batches to the device and sums of losses back
//   train/step_result_ring.h                holds results of steps that the host reads one step late
//   train/generate.h                        sends token ids to the device and copies logits back
//   nn/device_weights.h                     holds a loaded model's weights on a device, without masters
//   core/staging.h                          copies single tensors, for checkpoints and initial weights
//   optim/optimizer_device.cpp              launches one kernel for dozens of parameters
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
