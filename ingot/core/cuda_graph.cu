#include "ingot/core/cuda_graph.h"

#include "ingot/core/cuda_launch.h"

namespace ingot::cuda {

Graph::Graph(Stream& stream, const std::function<void()>& give) {
  const cudaStream_t queue = queue_of(stream);
  cudaGraph_t captured = nullptr;
  INGOT_CUDA_CHECK(cudaStreamBeginCapture(queue, cudaStreamCaptureModeThreadLocal));
  try {
    give();
  } catch (...) {
    if (cudaStreamEndCapture(queue, &captured) == cudaSuccess) cudaGraphDestroy(captured);
    cudaGetLastError();
    throw;
  }
  INGOT_CUDA_CHECK(cudaStreamEndCapture(queue, &captured));
  cudaGraphExec_t ready = nullptr;
  const cudaError_t error = cudaGraphInstantiate(&ready, captured, 0);
  cudaGraphDestroy(captured);
  check(error, "cudaGraphInstantiate");
  graph_ = ready;
}

Graph::~Graph() { cudaGraphExecDestroy(static_cast<cudaGraphExec_t>(graph_)); }

void Graph::launch(Stream& stream) const {
  INGOT_CUDA_CHECK(cudaGraphLaunch(static_cast<cudaGraphExec_t>(graph_), queue_of(stream)));
}

}  // namespace ingot::cuda
