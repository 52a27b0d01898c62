#include "tests/simulated_cuda/cuda_runtime.h"

#include <setjmp.h>
#include <sys/mman.h>
#include <ucontext.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <map>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

uint3 threadIdx, blockIdx;
dim3 blockDim, gridDim;

namespace simulated_cuda {
namespace {

constexpr size_t kStackBytes = 64 << 10;
constexpr int kWarp = 32;

enum class State { kReady, kAtBarrier, kAtExchange, kDone };

// A stack that threads run on. The scheduler enters it once through its context and afterwards switches
// with jumps, which cost no system call.
struct Fiber {
  ucontext_t context{};
  jmp_buf place{};
  bool is_entered = false;
  std::unique_ptr<char[]> stack = std::make_unique<char[]>(kStackBytes);
};

struct Thread {
  State state = State::kReady;
  uint64_t offered = 0;    // value this lane offers at an exchange
  Fiber* fiber = nullptr;  // null before the thread begins and after it ends
};

[[noreturn]] void give_up(const char* what, unsigned thread) {
  std::fprintf(stderr, "simulated CUDA: %s: block (%u, %u), thread %u of %u\n", what, blockIdx.x, blockIdx.y,
               thread, blockDim.x);
  std::abort();
}

struct Block {
  std::vector<Thread> threads;
  std::vector<uint64_t> settled;  // values of each warp's last exchange, by thread
  std::vector<std::unique_ptr<Fiber>> fibers;
  std::vector<Fiber*> idle;
  jmp_buf scheduler{};
  unsigned running = 0;                     // index of the running thread
  unsigned first = 0, lanes = 0, turn = 0;  // running warp: first thread, lane count, next turn
  const std::function<void()>* body = nullptr;
};
Block block;

unsigned in_order(unsigned i, unsigned count) { return order() == Order::kAscending ? i : count - 1 - i; }

// Makes the warp's next ready thread the running one. Returns false if none is left.
bool next_thread() {
  while (block.turn < block.lanes) {
    const unsigned index = block.first + in_order(block.turn++, block.lanes);
    if (block.threads[index].state != State::kReady) continue;
    block.running = index;
    threadIdx = {index % blockDim.x, index / blockDim.x, 0};
    return true;
  }
  return false;
}

[[noreturn]] void take_up(Fiber& fiber) {
  if (fiber.is_entered) _longjmp(fiber.place, 1);
  fiber.is_entered = true;
  setcontext(&fiber.context);
  std::abort();  // setcontext does not return
}

// Switches to the warp's next ready thread, or to the scheduler if none is left.
[[noreturn]] void go_on() {
  if (!next_thread()) _longjmp(block.scheduler, 1);
  Fiber*& fiber = block.threads[block.running].fiber;
  if (!fiber) {
    fiber = block.idle.back();
    block.idle.pop_back();
  }
  take_up(*fiber);
}

// The entry point of a fiber runs threads one after the other. If a thread never waited, the next new
// thread begins on the same stack.
void enter() {
  while (true) {
    (*block.body)();
    block.threads[block.running].state = State::kDone;
    Fiber* const fiber = std::exchange(block.threads[block.running].fiber, nullptr);
    const bool has_next = next_thread();
    if (has_next && !block.threads[block.running].fiber) {
      block.threads[block.running].fiber = fiber;
      continue;
    }
    block.idle.push_back(fiber);
    if (_setjmp(fiber->place) != 0) continue;
    if (!has_next) _longjmp(block.scheduler, 1);
    take_up(*block.threads[block.running].fiber);
  }
}

void yield(State state) {
  Thread& self = block.threads[block.running];
  self.state = state;
  if (_setjmp(self.fiber->place) == 0) go_on();
}

std::unique_ptr<Fiber> make_fiber() {
  auto fiber = std::make_unique<Fiber>();
  getcontext(&fiber->context);
  fiber->context.uc_stack.ss_sp = fiber->stack.get();
  fiber->context.uc_stack.ss_size = kStackBytes;
  makecontext(&fiber->context, enter, 0);
  return fiber;
}

// Runs every ready lane of the warp once, until it yields or ends.
void run_lanes() {
  block.turn = 0;
  if (_setjmp(block.scheduler) == 0) go_on();
}

// Returns true if all lanes of the warp stood at an exchange, and performs it.
bool settle_exchange() {
  Thread* const lanes = &block.threads[block.first];
  for (unsigned i = 0; i < block.lanes; ++i)
    if (lanes[i].state != State::kAtExchange) return false;
  for (unsigned i = 0; i < block.lanes; ++i) {
    block.settled[block.first + i] = lanes[i].offered;
    lanes[i].state = State::kReady;
  }
  return true;
}

// Returns true if threads stood at the barrier, and releases them. Aborts unless all threads of the block
// reached it. Returns false if all threads are done.
bool settle_barrier() {
  bool any = false;
  for (unsigned i = 0; i < block.threads.size(); ++i) {
    const State state = block.threads[i].state;
    if (state == State::kAtExchange) give_up("a lane waits for lanes that left or are at a barrier", i);
    any = any || state == State::kAtBarrier;
  }
  for (unsigned i = 0; any && i < block.threads.size(); ++i)
    if (block.threads[i].state == State::kAtBarrier)
      block.threads[i].state = State::kReady;
    else
      give_up("left before a barrier that others reach", i);
  return any;
}

// One warp runs as far as it can before the next begins, so that a missing barrier gives a wrong result.
void run_block() {
  const auto count = static_cast<unsigned>(block.threads.size());
  for (Thread& thread : block.threads) thread.state = State::kReady;
  const unsigned warps = (count + kWarp - 1) / kWarp;
  do {
    for (unsigned i = 0; i < warps; ++i) {
      block.first = in_order(i, warps) * kWarp;
      block.lanes = std::min<unsigned>(kWarp, count - block.first);
      do run_lanes();
      while (settle_exchange());
    }
  } while (settle_barrier());
}

}  // namespace

Order order() {
  static const char* const wanted = std::getenv("INGOT_SIMULATED_ORDER");
  static const bool is_descending = wanted && std::strcmp(wanted, "descending") == 0;
  return is_descending ? Order::kDescending : Order::kAscending;
}

void run_grid(dim3 grid, dim3 block_size, const std::function<void()>& thread) {
  gridDim = grid;
  blockDim = block_size;
  block.threads.assign(block_size.x * block_size.y, {});
  block.settled.resize(block.threads.size());
  block.body = &thread;
  while (block.fibers.size() < block.threads.size()) {
    block.fibers.push_back(make_fiber());
    block.idle.push_back(block.fibers.back().get());
  }
  for (unsigned y = 0; y < grid.y; ++y)
    for (unsigned x = 0; x < grid.x; ++x) {
      blockIdx = {x, y, 0};
      run_block();
    }
}

void block_barrier() { yield(State::kAtBarrier); }

uint64_t exchange(uint64_t value, int lane) {
  const unsigned self = block.running;
  block.threads[self].offered = value;
  yield(State::kAtExchange);
  const unsigned from = self / kWarp * kWarp + static_cast<unsigned>(lane);
  if (from >= block.threads.size()) give_up("an exchange with a lane that is not there", self);
  return block.settled[from];
}

uint32_t ballot(bool predicate) {
  const unsigned self = block.running, first = self / kWarp * kWarp;
  block.threads[self].offered = predicate ? 1 : 0;
  yield(State::kAtExchange);
  uint32_t bits = 0;
  for (unsigned i = first; i < std::min<size_t>(first + kWarp, block.threads.size()); ++i)
    bits |= static_cast<uint32_t>(block.settled[i]) << (i - first);
  return bits;
}

int lane() { return static_cast<int>(block.running % kWarp); }

}  // namespace simulated_cuda

cudaError_t cudaGetDeviceCount(int* count) {
  *count = 1;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int) { return cudaSuccess; }
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int) {
  *properties = {"simulated on the host", 9, 0, 4, 1 << 20, size_t{1} << 30};
  return cudaSuccess;
}
cudaError_t cudaDriverGetVersion(int* version) {
  *version = 13000;
  return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int* version) { return cudaDriverGetVersion(version); }

namespace simulated_cuda {
// A piece of work in a stream. It begins when `after` has done `count` pieces and `is_ready`, if there is one, returns true.
struct Work {
  std::function<void()> run;
  Stream* after = nullptr;
  uint64_t count = 0;
  std::function<bool()> is_ready = nullptr;
};
}  // namespace simulated_cuda

struct SimulatedGraph {
  std::vector<simulated_cuda::Work> work;
  bool is_spoilt = false;
};

namespace simulated_cuda {

struct Stream {
  std::deque<Work> work;
  uint64_t given = 0;              // pieces enqueued
  std::atomic<uint64_t> done = 0;  // pieces run; cudaEventQuery reads it on another thread
  bool is_busy = false;            // its front runs, or is waited for
  SimulatedGraph* captured = nullptr;
};

namespace {

std::vector<Stream*> streams;
std::map<char*, size_t> device_blocks;  // address -> bytes
int open_count = 0;

void set_access(int protection) {
  for (const auto& [begin, size_bytes] : device_blocks) mprotect(begin, size_bytes, protection);
}

// The device's memory can be read and written while at least one DeviceWorks exists.
struct DeviceWorks {
  DeviceWorks() {
    if (open_count++ == 0) set_access(PROT_READ | PROT_WRITE);
  }
  ~DeviceWorks() {
    if (--open_count == 0) set_access(PROT_NONE);
  }
  DeviceWorks(const DeviceWorks&) = delete;
  DeviceWorks& operator=(const DeviceWorks&) = delete;
};

void run_front(Stream& stream) {
  const Work next = std::move(stream.work.front());
  stream.work.pop_front();
  next.run();
  ++stream.done;
}

// Runs one piece of every stream that can go on without waiting. Sleeps if there is none.
void run_elsewhere() {
  bool has_run = false;
  for (size_t i = 0; i < streams.size(); ++i) {  // by index, because work may create streams
    Stream& stream = *streams[i];
    if (stream.is_busy || stream.work.empty()) continue;
    const Work& next = stream.work.front();
    if (next.after && next.after->done < next.count) continue;
    if (next.is_ready && !next.is_ready()) continue;
    stream.is_busy = true;
    run_front(stream);
    stream.is_busy = false;
    has_run = true;
  }
  if (!has_run) std::this_thread::sleep_for(std::chrono::microseconds(20));
}

void run_until(Stream& stream, uint64_t count) {
  const DeviceWorks works;
  while (stream.done < count) {
    if (stream.is_busy) {
      std::fprintf(stderr, "simulated CUDA: a stream waits for itself\n");
      std::abort();
    }
    stream.is_busy = true;
    const Work& next = stream.work.front();
    if (next.after) run_until(*next.after, next.count);
    while (next.is_ready && !next.is_ready()) run_elsewhere();
    run_front(stream);
    stream.is_busy = false;
  }
}

void run_all() {
  for (Stream* stream : streams) run_until(*stream, stream->given);
}

// Returns true if a stream is being captured, and invalidates the capture: the caller's
// operation is not allowed in it.
bool spoils_capture() {
  bool any = false;
  for (Stream* stream : streams)
    if (stream->captured) any = stream->captured->is_spoilt = true;
  return any;
}

void explain_fault(int /*signal*/, siginfo_t* info, void* /*context*/) {
  const auto* at = static_cast<const char*>(info->si_addr);
  for (const auto& [begin, size_bytes] : device_blocks)
    if (begin <= at && at < begin + size_bytes)
      std::fprintf(stderr, "simulated CUDA: the host touched device memory\n");
  std::signal(SIGSEGV, SIG_DFL);
}

void watch_faults() {
  struct sigaction action {};
  action.sa_sigaction = explain_fault;
  action.sa_flags = SA_SIGINFO;
  sigaction(SIGSEGV, &action, nullptr);
}

}  // namespace

namespace {
void enqueue_work(Stream* stream, Work work) {
  if (stream->captured) return stream->captured->work.push_back(std::move(work));
  stream->work.push_back(std::move(work));
  ++stream->given;
}
}  // namespace

void enqueue(Stream* stream, std::function<void()> work) { enqueue_work(stream, {.run = std::move(work)}); }

bool enqueue_shared(Stream* stream, std::function<bool()> is_ready, std::function<void()> work) {
  if (spoils_capture()) return false;
  enqueue_work(stream, {.run = std::move(work), .is_ready = std::move(is_ready)});
  return true;
}

}  // namespace simulated_cuda

using simulated_cuda::enqueue;
using simulated_cuda::run_until;

struct SimulatedEvent {
  cudaStream_t stream = nullptr;
  uint64_t count = 0;                                                // stream->done once the record has run
  std::shared_ptr<std::chrono::steady_clock::time_point> time = {};  // when the record ran
};

cudaError_t cudaGetDevice(int* device) {
  *device = 0;
  return cudaSuccess;
}
cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  *free = *total = size_t{1} << 40;
  return cudaSuccess;
}
cudaError_t cudaMalloc(void** memory, size_t size_bytes) {
  if (simulated_cuda::spoils_capture()) return cudaErrorStreamCaptureUnsupported;
  simulated_cuda::watch_faults();
  simulated_cuda::run_all();
  void* block = mmap(nullptr, size_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (block == MAP_FAILED) return cudaErrorMemoryAllocation;
  std::memset(block, 0xa5, size_bytes);
  mprotect(block, size_bytes, PROT_NONE);
  simulated_cuda::device_blocks[static_cast<char*>(block)] = size_bytes;
  *memory = block;
  return cudaSuccess;
}
cudaError_t cudaHostAlloc(void** memory, size_t size_bytes, unsigned) {
  *memory = std::aligned_alloc(256, (size_bytes + 255) / 256 * 256);
  if (*memory) std::memset(*memory, 0xa5, size_bytes);
  return *memory ? cudaSuccess : cudaErrorMemoryAllocation;
}
cudaError_t cudaFree(void* memory) {
  simulated_cuda::run_all();
  const auto found = simulated_cuda::device_blocks.find(static_cast<char*>(memory));
  if (found == simulated_cuda::device_blocks.end()) return cudaErrorInvalidValue;
  munmap(found->first, found->second);
  simulated_cuda::device_blocks.erase(found);
  return cudaSuccess;
}
cudaError_t cudaFreeHost(void* memory) {
  simulated_cuda::run_all();
  std::free(memory);
  return cudaSuccess;
}
cudaError_t cudaMemset(void* memory, int value, size_t size_bytes) {
  simulated_cuda::run_all();
  const simulated_cuda::DeviceWorks works;
  std::memset(memory, value, size_bytes);
  return cudaSuccess;
}
cudaError_t cudaMemsetAsync(void* memory, int value, size_t size_bytes, cudaStream_t stream) {
  enqueue(stream, [=] { std::memset(memory, value, size_bytes); });
  return cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t size_bytes, cudaMemcpyKind,
                            cudaStream_t stream) {
  enqueue(stream, [=] { std::memcpy(to, from, size_bytes); });
  return cudaSuccess;
}
cudaError_t cudaDeviceSynchronize() {
  if (simulated_cuda::spoils_capture()) return cudaErrorStreamCaptureUnsupported;
  simulated_cuda::run_all();
  return cudaSuccess;
}
cudaError_t cudaDeviceGetStreamPriorityRange(int* lowest, int* highest) {
  *lowest = 0;
  *highest = -5;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetPCIBusId(char* text, int size, int) {
  const char *gpus = std::getenv("INGOT_SIMULATED_GPUS"), *rank = std::getenv("OMPI_COMM_WORLD_RANK");
  const bool has_own = gpus && std::strcmp(gpus, "own") == 0 && rank;
  std::snprintf(text, static_cast<size_t>(size), "0000:%s", has_own ? rank : "0");
  return cudaSuccess;
}
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned, int) {
  *stream = new simulated_cuda::Stream;
  simulated_cuda::streams.push_back(*stream);
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  run_until(*stream, stream->given);
  std::erase(simulated_cuda::streams, stream);
  delete stream;
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  if (simulated_cuda::spoils_capture()) return cudaErrorStreamCaptureUnsupported;
  run_until(*stream, stream->given);
  return cudaSuccess;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  if (event->stream)
    simulated_cuda::enqueue_work(stream, {.run = [] {}, .after = event->stream, .count = event->count});
  return cudaSuccess;
}
cudaError_t cudaEventCreate(cudaEvent_t* event) {
  *event = new SimulatedEvent;
  return cudaSuccess;
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) { return cudaEventCreate(event); }
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  const auto time = std::make_shared<std::chrono::steady_clock::time_point>();
  simulated_cuda::enqueue(stream, [time] { *time = std::chrono::steady_clock::now(); });
  *event = {stream, stream->given, time};
  return cudaSuccess;
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  if (simulated_cuda::spoils_capture()) return cudaErrorStreamCaptureUnsupported;
  run_until(*event->stream, event->count);
  return cudaSuccess;
}
// Does not make the stream go on: the device works only when it is waited for.
cudaError_t cudaEventQuery(cudaEvent_t event) {
  return !event->stream || event->stream->done >= event->count ? cudaSuccess : cudaErrorNotReady;
}
cudaError_t cudaEventElapsedTime(float* time_ms, cudaEvent_t begin, cudaEvent_t end) {
  *time_ms = std::chrono::duration<float, std::milli>(*end->time - *begin->time).count();
  return cudaSuccess;
}
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  if (stream->captured) return cudaErrorInvalidValue;
  stream->captured = new SimulatedGraph;
  return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  *graph = std::exchange(stream->captured, nullptr);
  if (!*graph) return cudaErrorInvalidValue;
  if (!(*graph)->is_spoilt) return cudaSuccess;
  cudaGraphDestroy(std::exchange(*graph, nullptr));
  return cudaErrorStreamCaptureInvalidated;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* ready, cudaGraph_t graph, unsigned long long) {
  *ready = new SimulatedGraph(*graph);
  return cudaSuccess;
}
cudaError_t cudaGraphExecUpdate(cudaGraphExec_t ready, cudaGraph_t graph, cudaGraphExecUpdateResultInfo*) {
  if (ready->work.size() != graph->work.size()) return cudaErrorGraphExecUpdateFailure;
  ready->work = graph->work;
  return cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t graph, cudaStream_t stream) {
  for (const simulated_cuda::Work& work : graph->work) simulated_cuda::enqueue_work(stream, work);
  return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete graph;
  return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graph) { return cudaGraphDestroy(graph); }
