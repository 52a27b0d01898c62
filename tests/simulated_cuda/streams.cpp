// Memory, streams, events and graphs of the simulated device. Its time is simulated, too, so that what is
// chosen by timing is the same in every run.
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string_view>
#include <thread>
#include <utility>

#include "tests/simulated_cuda/cuda_runtime.h"
#include "tests/simulated_cuda/races.h"

cudaError_t cudaGetDeviceCount(int* count) {
  *count = 1;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int) { return cudaSuccess; }
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int) {
  *properties = {"simulated on the host", 9, 0, 4, size_t{1} << 30};
  return cudaSuccess;
}
cudaError_t cudaDriverGetVersion(int* version) {
  *version = 13000;
  return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int* version) { return cudaDriverGetVersion(version); }

namespace simulated_cuda {
// A piece of work in a stream. It begins when `after` has done `count` pieces and `is_ready`, if there is
// one, returns true.
struct Work {
  std::function<void()> run;
  std::vector<Use> uses = {};
  Clock submitted = {};               // what the host knew to be done
  std::vector<uint64_t> hashes = {};  // hashes of what is read of the host memory among `uses`
  Stream* after = nullptr;
  uint64_t count = 0;
  std::function<bool()> is_ready = nullptr;
  std::shared_ptr<void> held = nullptr;  // lives as long as the graph that has the work
};
}  // namespace simulated_cuda

// SimulatedGraph holds what was captured, in the order in which it was submitted. Lane 0 is the captured
// stream; every stream that joined the capture adds a lane.
struct SimulatedGraph {
  struct Node {
    enum class Kind { kWork, kRecord, kWait };
    Kind kind = Kind::kWork;
    size_t lane = 0;
    simulated_cuda::Work work = {};
    size_t event = 0;  // kRecord, kWait: number of a record in this graph
  };
  using Progress = std::vector<size_t>;  // pieces of work, by lane
  uint64_t id = 0;
  std::vector<Node> nodes;
  std::vector<Progress> lanes;    // what the next work of each lane is ordered behind
  std::vector<Progress> records;  // the same of each record
  bool is_spoilt = false;
  std::vector<simulated_cuda::Stream*> queues;  // where an instantiated graph runs its lanes from 1 on

  void add(Node node);
};

namespace simulated_cuda {

struct Stream {
  size_t number = 0;
  Clock clock;  // what the last operation that ran is ordered behind, and that operation
  std::deque<Work> work;
  uint64_t given = 0;              // pieces enqueued
  std::atomic<uint64_t> done = 0;  // pieces run; cudaEventQuery reads it on another thread
  bool is_busy = false;            // its front runs, or is waited for
  SimulatedGraph* captured = nullptr;
  size_t lane = 0;  // in the graph that is captured
};

namespace {

std::vector<Stream*> streams;
size_t stream_count = 1;  // number 0 stands for the default stream, which fills memory before it is used
std::map<char*, size_t> device_blocks, pinned_blocks;  // address -> bytes
uint32_t default_work = 0;                             // operations of the default stream
uint64_t time_us = 0;                                  // every operation of a stream takes 1
int open_count = 0;
constexpr size_t kPage = 4096, kHugePage = size_t{2} << 20;

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

uint64_t hash_of(const Use& use) {
  const std::string_view bytes(static_cast<const char*>(use.begin), use.size_bytes);
  return std::hash<std::string_view>()(bytes);
}

// Begins the default stream's or a stream's next operation, ordered behind `clock`.
void begin_next(size_t stream, Clock& clock) {
  if (clock.size() <= stream) clock.resize(stream + 1);
  ++clock[stream];
  begin_operation(stream, clock);
}

void run(const Work& work, Stream& stream) {
  join(stream.clock, work.submitted);
  begin_next(stream.number, stream.clock);
  for (size_t i = 0; i < work.uses.size(); ++i) {
    const Use& use = work.uses[i];
    access_range(use.begin, use.size_bytes, use.is_write);
    if (is_device_memory(use.begin)) continue;
    remove_pending(use.begin, use.size_bytes, use.is_write);
    if (!use.is_write && hash_of(use) != work.hashes[i])
      report("the host changes memory that a copy has yet to read");
  }
  work.run();
  ++time_us;
  end_operation();
}

int idle_rounds = 0;  // since an operation ran

void run_front(Stream& stream) {
  const Work next = std::move(stream.work.front());
  stream.work.pop_front();
  idle_rounds = 0;
  run(next, stream);
  ++stream.done;
}

// Runs one piece of every stream that can proceed without waiting. If there is none, it sleeps, and longer
// after repeated calls: ranks share the cores, and one of them may be computing.
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
  if (has_run) return;
  std::this_thread::sleep_for(std::chrono::microseconds(20 << std::min(idle_rounds++ / 8, 4)));
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

// Seen holds what threads of the host have asked about and found done. Work that the host submits afterwards
// comes later, also if another thread submits it: the threads synchronize by a lock that the simulation does
// not see.
struct Seen {
  std::mutex mutex;
  Clock clock;
};
Seen& seen() {
  static Seen seen;
  return seen;
}
void see(const Clock& clock) {
  const std::lock_guard lock(seen().mutex);
  join(seen().clock, clock);
}
void learn_what_was_seen() {
  const std::lock_guard lock(seen().mutex);
  join(host_clock(), seen().clock);
}

void explain_fault(int /*signal*/, siginfo_t* info, void* /*context*/) {
  const auto* at = static_cast<const char*>(info->si_addr);
  for (const auto& [begin, size_bytes] : device_blocks)
    if (begin <= at && at < begin + size_bytes)
      std::fprintf(stderr, "simulated CUDA: the host touched device memory\n");
  std::signal(SIGSEGV, SIG_DFL);
  if (info->si_code <= 0) std::raise(SIGSEGV);  // another process sent it, and it would not come again
}

void watch_faults() {
  struct sigaction action {};
  action.sa_sigaction = explain_fault;
  action.sa_flags = SA_SIGINFO;
  sigaction(SIGSEGV, &action, nullptr);
}

}  // namespace

bool is_device_memory(const void* place) {
  const auto* at = static_cast<const char*>(place);
  return std::any_of(device_blocks.begin(), device_blocks.end(),
                     [&](const auto& block) { return block.first <= at && at < block.first + block.second; });
}

void enqueue(Stream* stream, Work work) {
  if (stream->captured) return stream->captured->add({.lane = stream->lane, .work = std::move(work)});
  learn_what_was_seen();
  work.submitted = host_clock();
  work.hashes.resize(work.uses.size());
  for (size_t i = 0; i < work.uses.size(); ++i) {
    const Use& use = work.uses[i];
    if (is_device_memory(use.begin)) continue;
    if (!use.is_write) work.hashes[i] = hash_of(use);
    add_pending(use.begin, use.size_bytes, use.is_write);
  }
  stream->work.push_back(std::move(work));
  ++stream->given;
}
void enqueue(Stream* stream, std::function<void()> work, std::vector<Use> uses) {
  enqueue(stream, Work{.run = std::move(work), .uses = std::move(uses)});
}

void enqueue_shared(Stream* stream, std::function<bool()> is_ready, std::function<void()> work,
                    std::vector<Use> uses, std::shared_ptr<void> held) {
  if (!stream->captured) held = nullptr;
  enqueue(stream, Work{.run = std::move(work),
                       .uses = std::move(uses),
                       .is_ready = std::move(is_ready),
                       .held = std::move(held)});
}
bool is_captured(const Stream* stream) { return stream->captured != nullptr; }

int64_t launched_graphs = 0;
int64_t graph_launches() { return launched_graphs; }

// Runs everything and orders it before what the host does next.
void wait_for_all() {
  run_all();
  for (const Stream* stream : streams) join(host_clock(), stream->clock);
}

void wait_for(Stream& stream) {
  run_until(stream, stream.given);
  join(host_clock(), stream.clock);
}

// Maps memory with a page behind it that faults. Long blocks are made of huge pages: set_access takes time
// for each page.
void* map_memory(size_t size_bytes, int protection, std::map<char*, size_t>& blocks) {
  const size_t mapped = (size_bytes + kPage - 1) / kPage * kPage;
  const size_t aligned = mapped >= kHugePage ? kHugePage : 0;
  void* reserved =
      mmap(nullptr, mapped + kPage + aligned, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (reserved == MAP_FAILED) return nullptr;
  char* block = static_cast<char*>(reserved);
  if (aligned) block += kHugePage - reinterpret_cast<uintptr_t>(reserved) % kHugePage;
  mprotect(block, mapped, PROT_READ | PROT_WRITE);
  if (aligned) madvise(block, mapped, MADV_HUGEPAGE);
  std::memset(block, 0xa5, mapped);
  mprotect(block, mapped, protection);
  blocks[block] = size_bytes;
  add_memory(block, size_bytes, mapped + kPage);
  return block;
}

// Keeps the addresses, so that a use after the free is found.
cudaError_t unmap_memory(void* memory, std::map<char*, size_t>& blocks) {
  const auto found = blocks.find(static_cast<char*>(memory));
  if (found == blocks.end()) return cudaErrorInvalidValue;
  mmap(found->first, found->second, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1,
       0);
  forget_memory(memory);
  blocks.erase(found);
  return cudaSuccess;
}

}  // namespace simulated_cuda

using simulated_cuda::enqueue;
using simulated_cuda::join;
using simulated_cuda::run_until;

void SimulatedGraph::add(Node node) {
  Progress& own = lanes[node.lane];
  if (node.kind == Node::Kind::kWork) ++own[node.lane];
  if (node.kind == Node::Kind::kRecord) records.push_back(own);
  for (size_t i = 0; node.kind == Node::Kind::kWait && i < records[node.event].size(); ++i)
    own[i] = std::max(own[i], records[node.event][i]);
  nodes.push_back(std::move(node));
}

struct SimulatedEvent {
  cudaStream_t stream = nullptr;
  uint64_t count = 0;                                 // stream->done once the record has run
  std::shared_ptr<uint64_t> time_us = {};             // when the record ran
  std::shared_ptr<simulated_cuda::Clock> clock = {};  // what the record was ordered behind
  uint64_t graph = 0;  // id of the capture in which it was recorded last; 0: in none
  size_t record = 0;   // number of that record

  bool is_done() const { return !stream || stream->done >= count; }
};

namespace {

using simulated_cuda::Work;

SimulatedEvent record_in(simulated_cuda::Stream* stream) {
  const auto time = std::make_shared<uint64_t>();
  const auto clock = std::make_shared<simulated_cuda::Clock>();
  enqueue(stream, [=] {
    *time = simulated_cuda::time_us;
    *clock = stream->clock;
  });
  return {stream, stream->given, time, clock};
}

void wait_in(simulated_cuda::Stream* stream, const SimulatedEvent& event) {
  const auto take_clock = [stream, clock = event.clock] { join(stream->clock, *clock); };
  enqueue(stream, Work{.run = take_clock, .after = event.stream, .count = event.count});
}

cudaError_t spoil(SimulatedGraph* graph, cudaError_t error) {
  graph->is_spoilt = true;
  return error;
}

// A wait for an event that was recorded in a capture, or by a stream that is captured. Returns what the
// runtime says.
cudaError_t wait_in_graph(simulated_cuda::Stream* stream, const SimulatedEvent& event) {
  if (stream->captured && event.graph == 0) return spoil(stream->captured, cudaErrorStreamCaptureIsolation);
  const auto& all = simulated_cuda::streams;
  const auto other =
      std::ranges::find_if(all, [&](const auto* s) { return s->captured && s->captured->id == event.graph; });
  if (other == all.end()) return cudaErrorCapturedEvent;  // that capture has ended
  SimulatedGraph* graph = (*other)->captured;
  if (stream->captured && stream->captured != graph) return spoil(graph, cudaErrorStreamCaptureMerge);
  if (!stream->captured) {
    stream->captured = graph;
    stream->lane = graph->lanes.size();
    graph->lanes.emplace_back(stream->lane + 1);
  }
  for (SimulatedGraph::Progress& lane : graph->lanes) lane.resize(graph->lanes.size());
  graph->add({.kind = SimulatedGraph::Node::Kind::kWait, .lane = stream->lane, .event = event.record});
  return cudaSuccess;
}

// Lanes of graphs that are gone. They may still have work, and so has what follows them there.
std::vector<simulated_cuda::Stream*> free_queues;

}  // namespace

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
  *memory = simulated_cuda::map_memory(size_bytes, PROT_NONE, simulated_cuda::device_blocks);
  return *memory ? cudaSuccess : cudaErrorMemoryAllocation;
}
cudaError_t cudaHostAlloc(void** memory, size_t size_bytes, unsigned) {
  *memory = simulated_cuda::map_memory(size_bytes, PROT_READ | PROT_WRITE, simulated_cuda::pinned_blocks);
  return *memory ? cudaSuccess : cudaErrorMemoryAllocation;
}
cudaError_t cudaFree(void* memory) {
  simulated_cuda::wait_for_all();
  return memory ? simulated_cuda::unmap_memory(memory, simulated_cuda::device_blocks) : cudaSuccess;
}
cudaError_t cudaFreeHost(void* memory) {
  simulated_cuda::wait_for_all();
  return memory ? simulated_cuda::unmap_memory(memory, simulated_cuda::pinned_blocks) : cudaSuccess;
}
cudaError_t cudaMemset(void* memory, int value, size_t size_bytes) {
  simulated_cuda::run_all();
  const simulated_cuda::DeviceWorks works;
  simulated_cuda::Clock clock = simulated_cuda::host_clock();
  clock.resize(std::max<size_t>(clock.size(), 1));
  clock[0] = ++simulated_cuda::default_work;
  simulated_cuda::begin_operation(0, clock);
  simulated_cuda::access_range(memory, size_bytes, true);
  std::memset(memory, value, size_bytes);
  simulated_cuda::end_operation();
  return cudaSuccess;
}
cudaError_t cudaMemsetAsync(void* memory, int value, size_t size_bytes, cudaStream_t stream) {
  enqueue(stream, [=] { std::memset(memory, value, size_bytes); }, {{memory, size_bytes, true}});
  return cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t size_bytes, cudaMemcpyKind,
                            cudaStream_t stream) {
  enqueue(stream, [=] { std::memcpy(to, from, size_bytes); },
          {{from, size_bytes, false}, {to, size_bytes, true}});
  return cudaSuccess;
}
cudaError_t cudaDeviceSynchronize() {
  if (simulated_cuda::spoils_capture()) return cudaErrorStreamCaptureUnsupported;
  simulated_cuda::wait_for_all();
  simulated_cuda::join(simulated_cuda::host_clock(), {simulated_cuda::default_work});
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
  (*stream)->number = simulated_cuda::stream_count++;
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
  simulated_cuda::wait_for(*stream);
  return cudaSuccess;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  if (!event->stream && event->graph == 0)
    simulated_cuda::report("a stream waits for an event that was never recorded");
  if (stream->captured || event->graph != 0) return wait_in_graph(stream, *event);
  wait_in(stream, *event);
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
  if (SimulatedGraph* graph = stream->captured) {
    *event = {.graph = graph->id, .record = graph->records.size()};
    graph->add({.kind = SimulatedGraph::Node::Kind::kRecord, .lane = stream->lane, .event = event->record});
    return cudaSuccess;
  }
  *event = record_in(stream);
  return cudaSuccess;
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  if (simulated_cuda::spoils_capture()) return cudaErrorStreamCaptureUnsupported;
  if (event->graph != 0) return cudaErrorCapturedEvent;
  if (!event->stream) simulated_cuda::report("the host waits for an event that was never recorded");
  run_until(*event->stream, event->count);
  join(simulated_cuda::host_clock(), *event->clock);
  return cudaSuccess;
}
// Does not run the stream: the device works only when the host waits for it.
cudaError_t cudaEventQuery(cudaEvent_t event) {
  if (event->graph != 0) return cudaErrorCapturedEvent;
  if (!event->is_done()) return cudaErrorNotReady;
  if (event->clock) simulated_cuda::see(*event->clock);
  return cudaSuccess;
}
cudaError_t cudaEventElapsedTime(float* time_ms, cudaEvent_t begin, cudaEvent_t end) {
  *time_ms = static_cast<float>(*end->time_us - *begin->time_us) * 1e-3f;
  return cudaSuccess;
}
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  static uint64_t captures = 0;
  if (stream->captured) return cudaErrorInvalidValue;
  stream->captured = new SimulatedGraph;
  stream->captured->id = ++captures;
  stream->captured->lanes = {{0}};
  stream->lane = 0;
  return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  SimulatedGraph* captured = *graph = stream->captured;
  if (!captured) return cudaErrorInvalidValue;
  if (stream->lane != 0) return spoil(std::exchange(*graph, nullptr), cudaErrorStreamCaptureUnmatched);
  for (simulated_cuda::Stream* each : simulated_cuda::streams)
    if (each->captured == captured) each->captured = nullptr;
  bool is_joined = true;  // the work of every lane precedes what the captured stream would do next
  for (size_t lane = 0; lane < captured->lanes.size(); ++lane)
    is_joined = is_joined && captured->lanes[0][lane] == captured->lanes[lane][lane];
  if (!captured->is_spoilt && is_joined) return cudaSuccess;
  const cudaError_t error =
      captured->is_spoilt ? cudaErrorStreamCaptureInvalidated : cudaErrorStreamCaptureUnjoined;
  cudaGraphDestroy(std::exchange(*graph, nullptr));
  return error;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* ready, cudaGraph_t graph, unsigned long long) {
  *ready = new SimulatedGraph(*graph);
  for (size_t lane = 1; lane < graph->lanes.size(); ++lane) {
    if (free_queues.empty()) cudaStreamCreateWithPriority(&free_queues.emplace_back(), 0, 0);
    (*ready)->queues.push_back(free_queues.back());
    free_queues.pop_back();
  }
  return cudaSuccess;
}
cudaError_t cudaGraphExecUpdate(cudaGraphExec_t ready, cudaGraph_t graph, cudaGraphExecUpdateResultInfo*) {
  if (ready->nodes.size() != graph->nodes.size() || ready->lanes.size() != graph->lanes.size())
    return cudaErrorGraphExecUpdateFailure;
  ready->nodes = graph->nodes;
  return cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t graph, cudaStream_t stream) {
  if (stream->captured) return spoil(stream->captured, cudaErrorStreamCaptureUnsupported);
  ++simulated_cuda::launched_graphs;
  std::vector<SimulatedEvent> records(graph->records.size());
  for (const SimulatedGraph::Node& node : graph->nodes) {
    simulated_cuda::Stream* queue = node.lane == 0 ? stream : graph->queues[node.lane - 1];
    switch (node.kind) {
      case SimulatedGraph::Node::Kind::kWork: {
        Work work = node.work;
        work.held = nullptr;
        enqueue(queue, std::move(work));
        break;
      }
      case SimulatedGraph::Node::Kind::kRecord:
        records[node.event] = record_in(queue);
        break;
      case SimulatedGraph::Node::Kind::kWait:
        wait_in(queue, records[node.event]);
        break;
    }
  }
  return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete graph;
  return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graph) {
  free_queues.insert(free_queues.end(), graph->queues.begin(), graph->queues.end());
  return cudaGraphDestroy(graph);
}
