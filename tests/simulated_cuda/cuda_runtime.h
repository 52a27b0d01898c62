// CUDA simulated on the host, for tests. The kernels of ingot/**/*.cu compile against this header instead
// of the toolkit's. They run thread by thread; each thread is a fiber that yields at barriers and warp
// exchanges. The simulation has only what Ingot's kernels use.
//
// It finds wrong index arithmetic, wrong reductions, a barrier that not all threads reach, an exchange that
// not all lanes of its mask join, and races (races.h): between threads, blocks, streams, and copies and the
// host. Each warp of a block runs to its next barrier before the next warp begins; the tests run in both
// orders of the lanes, warps and blocks and in random ones.
//
// A stream does nothing until the host waits for it, so the simulation also finds code that reads a result
// too early. Device memory is poisoned at first, and the host can access it only while a stream runs. While a
// stream is captured into a graph, waiting and allocating are errors and invalidate the graph. A stream that
// waits for an event of the capture joins it, and its work must precede the end of the captured stream; waits
// for what was not captured are errors. A launched graph runs each stream of its capture in a stream of its
// own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <tuple>
#include <vector>

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __grid_constant__
#define __shared__ static  // safe because blocks run one after the other
#define __restrict__ __restrict

struct dim3 {
  unsigned x = 1, y = 1, z = 1;
  constexpr dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}  // NOLINT
};
struct uint3 {
  unsigned x, y, z;
};
struct alignas(16) uint4 {
  unsigned x, y, z, w;
};
struct alignas(8) uint2 {
  unsigned x, y;
};
struct alignas(16) float4 {
  float x, y, z, w;
};

extern uint3 threadIdx, blockIdx;
extern dim3 blockDim, gridDim;

namespace simulated_cuda {

enum class Order { kAscending, kDescending, kRandom };
// The order in which blocks, and the lanes and warps of a block between two barriers, run. The environment
// variable INGOT_SIMULATED_ORDER is "ascending", "descending" or the seed of random orders.
Order order();

void run_grid(dim3 grid, dim3 block, size_t shared_bytes, const std::function<void()>& thread);
void block_barrier();
// Offers 64 bits to the lanes of the mask, waits until all of them have done so, and returns the bits of
// `lane`.
uint64_t exchange(uint32_t mask, uint64_t value, int lane);
uint32_t ballot(uint32_t mask, bool predicate);
void sync_warp(uint32_t mask);
int lane();
// The dynamic shared memory of the running block. The simulation ends if the launch asked for fewer bytes.
void* dynamic_shared(size_t size_bytes);
// Returns true if a block of the kernel may have this much dynamic shared memory.
bool allows_dynamic_shared(const void* kernel, size_t size_bytes);
// Says that the running thread changes memory by an atomic operation (races.h).
void access_atomically(const void* place, size_t size_bytes);

struct Stream;
// Memory that a copy or a product uses, as a whole.
struct Use {
  const void* begin = nullptr;
  size_t size_bytes = 0;
  bool is_write = false;
};
bool is_device_memory(const void* place);
// Appends work to the stream. `uses` is the memory that the work accesses in addition to what the code of
// kernels accesses.
void enqueue(Stream* stream, std::function<void()> work, std::vector<Use> uses = {});
// Enqueues work in which other ranks take part. The stream calls `is_ready` until it returns true, and then
// calls `work`; meanwhile the other streams continue. A graph calls both in every launch, and keeps `held`.
void enqueue_shared(Stream* stream, std::function<bool()> is_ready, std::function<void()> work,
                    std::vector<Use> uses, std::shared_ptr<void> held);
bool is_captured(const Stream* stream);
// Graphs launched so far.
int64_t graph_launches();

template <typename T>
T exchanged(uint32_t mask, T value, int from) {
  static_assert(sizeof(T) <= 8);
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof value);
  bits = exchange(mask, bits, from);
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

}  // namespace simulated_cuda

inline void __syncthreads() { simulated_cuda::block_barrier(); }
inline void __syncwarp(unsigned mask = 0xffffffffu) { simulated_cuda::sync_warp(mask); }
template <typename T>
T __shfl_xor_sync(unsigned lanes, T value, int mask) {
  return simulated_cuda::exchanged(lanes, value, simulated_cuda::lane() ^ mask);
}
template <typename T>
T __shfl_sync(unsigned lanes, T value, int from) {
  return simulated_cuda::exchanged(lanes, value, from);
}
inline unsigned __ballot_sync(unsigned lanes, bool predicate) {
  return simulated_cuda::ballot(lanes, predicate);
}
inline int __popc(unsigned bits) { return __builtin_popcount(bits); }
template <typename T>
__attribute__((no_sanitize("thread"))) T atomicAdd(T* place, T value) {
  simulated_cuda::access_atomically(place, sizeof(T));
  const T old = *place;
  *place += value;
  return old;
}
template <typename T>
__attribute__((no_sanitize("thread"))) T atomicMax(T* place, T value) {
  simulated_cuda::access_atomically(place, sizeof(T));
  const T old = *place;
  if (value > old) *place = value;
  return old;
}

// The functions of the CUDA runtime that core/cuda/cuda_device.cu calls.
enum cudaError_t {
  cudaSuccess = 0,
  cudaErrorInvalidValue = 1,
  cudaErrorMemoryAllocation = 2,
  cudaErrorNotReady = 600,
  cudaErrorStreamCaptureUnsupported = 900,
  cudaErrorStreamCaptureInvalidated = 901,
  cudaErrorStreamCaptureMerge = 902,
  cudaErrorStreamCaptureUnmatched = 903,
  cudaErrorStreamCaptureUnjoined = 904,
  cudaErrorStreamCaptureIsolation = 905,
  cudaErrorCapturedEvent = 907,
  cudaErrorGraphExecUpdateFailure = 910
};
enum cudaStreamCaptureMode { cudaStreamCaptureModeThreadLocal = 1 };
enum cudaMemcpyKind { cudaMemcpyDefault = 4 };
using cudaStream_t = simulated_cuda::Stream*;
using cudaEvent_t = struct SimulatedEvent*;
using cudaGraph_t = struct SimulatedGraph*;
using cudaGraphExec_t = cudaGraph_t;
inline constexpr unsigned cudaStreamNonBlocking = 1, cudaHostAllocDefault = 0;

struct cudaDeviceProp {
  char name[256];
  int major, minor, multiProcessorCount;
  size_t totalGlobalMem;
};

inline const char* cudaGetErrorString(cudaError_t error) {
  switch (error) {
    case cudaErrorStreamCaptureUnsupported:
      return "operation not permitted when stream is capturing";
    case cudaErrorStreamCaptureUnjoined:
      return "capturing stream has unjoined work";
    case cudaErrorStreamCaptureIsolation:
      return "dependency created on uncaptured work in another stream";
    default:
      return "simulated error";
  }
}
inline const char* cudaGetErrorName(cudaError_t) { return "simulatedError"; }
inline cudaError_t cudaGetLastError() { return cudaSuccess; }
cudaError_t cudaGetDeviceCount(int* count);
cudaError_t cudaSetDevice(int device);
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device);
cudaError_t cudaDriverGetVersion(int* version);
cudaError_t cudaRuntimeGetVersion(int* version);
cudaError_t cudaGetDevice(int* device);
cudaError_t cudaMemGetInfo(size_t* free, size_t* total);
cudaError_t cudaMalloc(void** memory, size_t size_bytes);
cudaError_t cudaHostAlloc(void** memory, size_t size_bytes, unsigned flags);
cudaError_t cudaFree(void* memory);
cudaError_t cudaFreeHost(void* memory);
cudaError_t cudaMemset(void* memory, int value, size_t size_bytes);
cudaError_t cudaMemsetAsync(void* memory, int value, size_t size_bytes, cudaStream_t stream);
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t size_bytes, cudaMemcpyKind kind,
                            cudaStream_t stream);
cudaError_t cudaDeviceSynchronize();
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int priority);
cudaError_t cudaDeviceGetStreamPriorityRange(int* lowest, int* highest);
cudaError_t cudaStreamDestroy(cudaStream_t stream);
cudaError_t cudaStreamSynchronize(cudaStream_t stream);
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags);
cudaError_t cudaEventCreate(cudaEvent_t* event);
inline constexpr unsigned cudaEventDisableTiming = 2;
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags);
cudaError_t cudaEventQuery(cudaEvent_t event);
// INGOT_SIMULATED_GPUS=own gives every rank a GPU of its own; otherwise they share one.
cudaError_t cudaDeviceGetPCIBusId(char* text, int size, int device);
cudaError_t cudaEventDestroy(cudaEvent_t event);
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream);
cudaError_t cudaEventSynchronize(cudaEvent_t event);
cudaError_t cudaEventElapsedTime(float* time_ms, cudaEvent_t begin, cudaEvent_t end);
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode);
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph);
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* ready, cudaGraph_t graph, unsigned long long flags);
struct cudaGraphExecUpdateResultInfo {};
// Like the real runtime, refuses a graph with a different number of nodes.
cudaError_t cudaGraphExecUpdate(cudaGraphExec_t ready, cudaGraph_t graph,
                                cudaGraphExecUpdateResultInfo* result);
cudaError_t cudaGraphLaunch(cudaGraphExec_t graph, cudaStream_t stream);
cudaError_t cudaGraphDestroy(cudaGraph_t graph);
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graph);

enum cudaDeviceAttr { cudaDevAttrMaxSharedMemoryPerBlockOptin = 97 };
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device);
enum cudaFuncAttribute { cudaFuncAttributeMaxDynamicSharedMemorySize = 8 };
cudaError_t cudaFuncSetAttribute(const void* kernel, cudaFuncAttribute attribute, int value);
template <typename... Params>
cudaError_t cudaFuncSetAttribute(void (*kernel)(Params...), cudaFuncAttribute attribute, int value) {
  return cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel), attribute, value);
}

struct cudaLaunchConfig_t {
  dim3 gridDim, blockDim;
  size_t dynamicSmemBytes = 0;
  cudaStream_t stream = nullptr;
};

template <typename... Params, typename... Args>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(Params...), Args&&... args) {
  if (config->blockDim.x * config->blockDim.y > 1024) return cudaErrorInvalidValue;
  if (config->gridDim.y > 65535 || config->gridDim.z > 65535) return cudaErrorInvalidValue;
  const size_t shared_bytes = config->dynamicSmemBytes;
  if (!simulated_cuda::allows_dynamic_shared(reinterpret_cast<const void*>(kernel), shared_bytes))
    return cudaErrorInvalidValue;
  simulated_cuda::enqueue(
      config->stream, [grid = config->gridDim, block = config->blockDim, shared_bytes, kernel,
                       values = std::tuple<Params...>(static_cast<Params>(args)...)] {
        simulated_cuda::run_grid(grid, block, shared_bytes, [&] { std::apply(kernel, values); });
      });
  return cudaSuccess;
}
