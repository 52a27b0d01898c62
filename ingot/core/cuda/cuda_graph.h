// CUDA graphs. Defined in builds with CUDA.
#pragma once

#include <functional>

#include "ingot/core/stream.h"

namespace ingot::cuda {

// Work that is given to a stream again and again as one: the kernels, copies and fills that `give` gave it,
// with the arguments that they had, on the same memory.
class Graph {
 public:
  // Calls give(), of which nothing runs yet. It must not wait for the device or allocate; what it throws is
  // passed on.
  Graph(Stream& stream, const std::function<void()>& give);
  ~Graph();
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  // Becomes the work of this give(): quicker than a new graph where it is the same kernels with other
  // arguments. Launches that are under way keep theirs.
  void replace(Stream& stream, const std::function<void()>& give);

  void launch(Stream& stream) const;

 private:
  void* graph_ = nullptr;  // ready to run
};

}  // namespace ingot::cuda
