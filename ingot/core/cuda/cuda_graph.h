// CUDA graphs. Defined only in builds with CUDA.
#pragma once

#include <functional>

#include "ingot/core/stream.h"

namespace ingot::cuda {

// A recorded sequence of work that is launched again and again as a whole: the kernels, copies and fills
// that `give` submitted, with the same arguments and the same memory.
class Graph {
 public:
  // Records what give() submits to the stream; none of it runs yet. give() must not wait for the device
  // or allocate. Its exceptions are passed on.
  Graph(Stream& stream, const std::function<void()>& give);
  ~Graph();
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  // Replaces the recorded work by what give() submits now. This is faster than a new graph if the kernels
  // are the same and only arguments differ. Launches already in flight keep the old arguments.
  void replace(Stream& stream, const std::function<void()>& give);

  void launch(Stream& stream) const;

 private:
  void* graph_ = nullptr;  // cudaGraphExec_t
};

}  // namespace ingot::cuda
