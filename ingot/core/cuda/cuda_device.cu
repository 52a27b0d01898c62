#include "ingot/core/cuda/cuda_device.h"

#include <array>
#include <utility>

#include "ingot/core/copy.h"
#include "ingot/core/cuda/cuda_launch.h"

namespace ingot::cuda {
namespace {

class Queue final : public StreamResource {
 public:
  explicit Queue(int priority) {
    INGOT_CUDA_CHECK(cudaStreamCreateWithPriority(&queue, cudaStreamNonBlocking, priority));
  }
  ~Queue() override { cudaStreamDestroy(queue); }
  Queue(const Queue&) = delete;
  Queue& operator=(const Queue&) = delete;

  cudaStream_t queue = nullptr;
};

Stream stream_of_priority(int priority) {
  if (const std::string reason = no_device_reason(); !reason.empty())
    fail(ErrorKind::kUsage, "CUDA: {}; `ingot doctor` says what is missing", reason);
  Stream stream;
  stream.device = Device::kCuda;
  stream.queue = std::make_unique<Queue>(priority);
  return stream;
}

cudaEvent_t handle(void* event) { return static_cast<cudaEvent_t>(event); }

std::string bus_of(int device) {
  std::array<char, 16> bus{};
  INGOT_CUDA_CHECK(cudaDeviceGetPCIBusId(bus.data(), bus.size(), device));
  return bus.data();
}

}  // namespace

void check(cudaError_t error, const char* call) {
  if (error == cudaSuccess) return;
  cudaGetLastError();  // clears the error, so that the next call does not report it again
  const ErrorKind kind = error == cudaErrorMemoryAllocation ? ErrorKind::kMemory : ErrorKind::kInternal;
  fail(kind, "CUDA: {}: {} ({})", call, cudaGetErrorString(error), cudaGetErrorName(error));
}

cudaStream_t queue_of(const Stream& stream) {
  INGOT_CHECK(stream.device == Device::kCuda && stream.queue, "a CUDA launch on a stream of the CPU");
  return static_cast<const Queue&>(*stream.queue).queue;
}

std::vector<DeviceInfo> devices() {
  int count = 0;
  if (cudaGetDeviceCount(&count) != cudaSuccess) {
    cudaGetLastError();
    return {};
  }
  std::vector<DeviceInfo> found;
  for (int i = 0; i < count; ++i) {
    cudaDeviceProp properties{};
    INGOT_CUDA_CHECK(cudaGetDeviceProperties(&properties, i));
    found.push_back({properties.name, properties.major, properties.minor, properties.multiProcessorCount,
                     properties.totalGlobalMem, bus_of(i)});
  }
  return found;
}

std::string no_device_reason() {
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  cudaGetLastError();
  if (error == cudaSuccess && count > 0) return "";
  return error == cudaSuccess ? "no device is visible" : cudaGetErrorString(error);
}

void use_device(int index) { INGOT_CUDA_CHECK(cudaSetDevice(index)); }

size_t free_memory_bytes() {
  size_t free = 0, total = 0;
  INGOT_CUDA_CHECK(cudaMemGetInfo(&free, &total));
  return free;
}

std::string device_bus() { return bus_of(current_device()); }

size_t most_shared_bytes() {
  int size_bytes = 0;
  INGOT_CUDA_CHECK(
      cudaDeviceGetAttribute(&size_bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, current_device()));
  return static_cast<size_t>(size_bytes);
}

int current_device() {
  int index = 0;
  INGOT_CUDA_CHECK(cudaGetDevice(&index));
  return index;
}

int driver_version() {
  int version = 0;
  return cudaDriverGetVersion(&version) == cudaSuccess ? version : 0;
}

int runtime_version() {
  int version = 0;
  return cudaRuntimeGetVersion(&version) == cudaSuccess ? version : 0;
}

void* allocate(MemoryKind kind, size_t size_bytes, const std::string& what) {
  void* memory = nullptr;
  const cudaError_t error = kind == MemoryKind::kDevice
                                ? cudaMalloc(&memory, size_bytes)
                                : cudaHostAlloc(&memory, size_bytes, cudaHostAllocDefault);
  if (error != cudaSuccess) {
    cudaGetLastError();
    fail(ErrorKind::kMemory, "arena '{}': CUDA refused {:.2f} GiB: {}", what,
         static_cast<double>(size_bytes) / (1 << 30), cudaGetErrorString(error));
  }
  INGOT_CUDA_CHECK(cudaMemset(memory, 0, size_bytes));
  INGOT_CUDA_CHECK(cudaDeviceSynchronize());  // so that other streams see the zeros
  return memory;
}

void release(MemoryKind kind, void* memory) noexcept {
  if (kind == MemoryKind::kDevice)
    cudaFree(memory);
  else
    cudaFreeHost(memory);
}

Stream make_stream() { return stream_of_priority(0); }

Stream make_priority_stream() {
  int lowest = 0, highest = 0;  // the highest priority is the smallest number
  cudaDeviceGetStreamPriorityRange(&lowest, &highest);
  return stream_of_priority(highest);
}

void synchronize(Stream& stream) { INGOT_CUDA_CHECK(cudaStreamSynchronize(queue_of(stream))); }

void copy(const Tensor& to, const Tensor& from, Stream& stream) {
  count_launch(LaunchKind::kCopy);
  INGOT_CUDA_CHECK(cudaMemcpyAsync(to.data, from.data, from.bytes(), cudaMemcpyDefault, queue_of(stream)));
}

void fill_zero(const Tensor& t, Stream& stream) {
  count_launch(LaunchKind::kCopy);
  INGOT_CUDA_CHECK(cudaMemsetAsync(t.data, 0, t.bytes(), queue_of(stream)));
}

Event::Event() {
  cudaEvent_t event = nullptr;
  INGOT_CUDA_CHECK(cudaEventCreate(&event));
  event_ = event;
}

Event::~Event() {
  if (event_) cudaEventDestroy(handle(event_));
}

Event::Event(Event&& other) noexcept : event_(std::exchange(other.event_, nullptr)) {}

void Event::record(Stream& stream) { INGOT_CUDA_CHECK(cudaEventRecord(handle(event_), queue_of(stream))); }

void Event::make_wait(Stream& stream) const {
  INGOT_CUDA_CHECK(cudaStreamWaitEvent(queue_of(stream), handle(event_), 0));
}

void Event::synchronize() const { INGOT_CUDA_CHECK(cudaEventSynchronize(handle(event_))); }

double Event::seconds_since(const Event& earlier) const {
  float time_ms = 0;
  INGOT_CUDA_CHECK(cudaEventElapsedTime(&time_ms, handle(earlier.event_), handle(event_)));
  return static_cast<double>(time_ms) * 1e-3;
}

}  // namespace ingot::cuda
