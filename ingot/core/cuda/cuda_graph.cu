#include "ingot/core/cuda/cuda_graph.h"

#include "ingot/core/cuda/cuda_launch.h"

namespace ingot::cuda {
namespace {

// While it lives, the stream says that a graph is captured.
struct Recording {
  Recording(Stream& captured, GraphHooks& hooks) : stream(captured) {
    hooks = {};
    stream.graph = &hooks;
  }
  ~Recording() {
    for (const auto& hook : stream.graph->at_end) hook();
    stream.graph = nullptr;
  }
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;

  Stream& stream;
};

cudaGraph_t capture(Stream& stream, const std::function<void()>& give, GraphHooks& hooks) {
  const cudaStream_t queue = queue_of(stream);
  cudaGraph_t captured = nullptr;
  INGOT_CUDA_CHECK(cudaStreamBeginCapture(queue, cudaStreamCaptureModeThreadLocal));
  const Recording recording(stream, hooks);
  try {
    give();
  } catch (...) {
    if (cudaStreamEndCapture(queue, &captured) == cudaSuccess) cudaGraphDestroy(captured);
    cudaGetLastError();
    throw;
  }
  INGOT_CUDA_CHECK(cudaStreamEndCapture(queue, &captured));
  return captured;
}

cudaGraphExec_t instantiate(cudaGraph_t captured) {
  cudaGraphExec_t ready = nullptr;
  const cudaError_t error = cudaGraphInstantiate(&ready, captured, 0);
  cudaGraphDestroy(captured);
  check(error, "cudaGraphInstantiate");
  return ready;
}

}  // namespace

Graph::Graph(Stream& stream, const std::function<void()>& give)
    : graph_(instantiate(capture(stream, give, hooks_))) {}

Graph::~Graph() { cudaGraphExecDestroy(static_cast<cudaGraphExec_t>(graph_)); }

void Graph::replace(Stream& stream, const std::function<void()>& give) {
  const cudaGraph_t captured = capture(stream, give, hooks_);
  const auto ready = static_cast<cudaGraphExec_t>(graph_);
  cudaGraphExecUpdateResultInfo result{};
  if (cudaGraphExecUpdate(ready, captured, &result) == cudaSuccess) {
    cudaGraphDestroy(captured);
    return;
  }
  cudaGetLastError();  // the graph has other kernels and cannot be updated in place
  graph_ = instantiate(captured);
  cudaGraphExecDestroy(ready);
}

void Graph::launch(Stream& stream) const {
  count_launch(LaunchKind::kGraph);
  INGOT_CUDA_CHECK(cudaGraphLaunch(static_cast<cudaGraphExec_t>(graph_), queue_of(stream)));
  for (const auto& hook : hooks_.at_launch) hook();
}

}  // namespace ingot::cuda
