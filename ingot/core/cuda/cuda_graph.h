// CUDA graphs. Defined only in builds with CUDA.
#pragma once

#include <functional>

#include "ingot/core/stream.h"

namespace ingot::cuda {

// Graph is a recorded sequence of work that is launched again and again as a whole: the kernels, copies,
// fills and collectives that `give` submitted, with the same arguments and the same memory. Another stream
// takes part if it waits for an event that was recorded in the captured stream; the captured stream must
// wait for that stream's last work before give() returns. No stream of the graph may wait for an event that
// was recorded before the capture.
class Graph {
 public:
  // Records the work that give() submits to the stream; none of it runs yet. give() must not wait for the
  // device or allocate. Its exceptions are passed on. While it runs, stream.graph is not null. A graph must
  // be destroyed before the groups of ranks whose collectives it holds.
  Graph(Stream& stream, const std::function<void()>& give);
  ~Graph();
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  // Replaces the recorded work with the work that give() submits now. This is faster than a new graph if the
  // kernels are the same and only arguments differ. Launches already in flight keep the old arguments.
  void replace(Stream& stream, const std::function<void()>& give);

  void launch(Stream& stream) const;

 private:
  GraphHooks hooks_;
  void* graph_ = nullptr;  // cudaGraphExec_t
};

}  // namespace ingot::cuda
