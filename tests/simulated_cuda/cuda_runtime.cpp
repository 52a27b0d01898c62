#include "tests/simulated_cuda/cuda_runtime.h"

#include <sys/mman.h>
#include <ucontext.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <numeric>
#include <random>
#include <unordered_map>
#include <utility>
#include <vector>

#include "tests/simulated_cuda/races.h"

uint3 threadIdx, blockIdx;
dim3 blockDim, gridDim;

namespace simulated_cuda {
namespace {

constexpr size_t kStackBytes = 64 << 10, kMaxThreads = 1024;
constexpr unsigned kWarp = 32;

enum class State { kReady, kAtBarrier, kAtExchange, kDone };
enum class Exchange { kShuffle, kVote, kSync };

// A place to go back to, for the compiler's own jumps, which save less than those of the C library.
using Place = std::array<void*, 5>;

// A stack that threads run on. The scheduler enters it once through its context and afterwards switches
// with jumps, which cost no system call.
struct Fiber {
  ucontext_t context{};
  Place place{};
  bool is_entered = false;
  char* stack = nullptr;
};

struct Thread {
  State state = State::kReady;
  uint64_t offered = 0;  // value this lane offers at an exchange
  uint32_t mask = 0;     // lanes that this lane waits for at an exchange
  Exchange exchange = Exchange::kShuffle;
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
  Place scheduler{};
  unsigned running = 0;                     // index of the running thread
  unsigned first = 0, lanes = 0, turn = 0;  // running warp: first thread, lane count, next turn
  std::vector<unsigned> lane_order, warp_order;
  const std::function<void()>* body = nullptr;
};
Block block;

std::vector<unsigned> in_order(unsigned count) {
  static std::mt19937_64 random(std::strtoull(std::getenv("INGOT_SIMULATED_ORDER") ?: "", nullptr, 10));
  std::vector<unsigned> places(count);
  std::iota(places.begin(), places.end(), 0u);
  if (order() == Order::kDescending) std::reverse(places.begin(), places.end());
  if (order() == Order::kRandom) std::shuffle(places.begin(), places.end(), random);
  return places;
}

// Makes the warp's next ready thread the running one. Returns false if none is left.
bool next_thread() {
  while (block.turn < kWarp) {
    const unsigned lane = block.lane_order[block.turn++], index = block.first + lane;
    if (lane >= block.lanes || block.threads[index].state != State::kReady) continue;
    block.running = index;
    set_thread(index);
    threadIdx = {index % blockDim.x, index / blockDim.x, 0};
    return true;
  }
  return false;
}

// A function must not both set a place and jump to one, so this one is never inlined.
[[noreturn, gnu::noinline]] void jump(Place& place) { __builtin_longjmp(place.data(), 1); }

[[noreturn]] void take_up(Fiber& fiber) {
  if (fiber.is_entered) jump(fiber.place);
  fiber.is_entered = true;
  setcontext(&fiber.context);
  std::abort();  // setcontext does not return
}

// Switches to the warp's next ready thread, or to the scheduler if none is left.
[[noreturn]] void go_on() {
  if (!next_thread()) jump(block.scheduler);
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
    if (__builtin_setjmp(fiber->place.data()) != 0) continue;
    if (!has_next) jump(block.scheduler);
    take_up(*block.threads[block.running].fiber);
  }
}

void yield(State state) {
  Thread& self = block.threads[block.running];
  self.state = state;
  if (__builtin_setjmp(self.fiber->place.data()) == 0) go_on();
}

std::unique_ptr<Fiber> make_fiber() {
  static char* stacks = [] {
    auto* all = static_cast<char*>(mmap(nullptr, kMaxThreads * kStackBytes, PROT_READ | PROT_WRITE,
                                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
    set_stacks(all, kMaxThreads * kStackBytes);
    return all;
  }();
  auto fiber = std::make_unique<Fiber>();
  fiber->stack = std::exchange(stacks, stacks + kStackBytes);
  getcontext(&fiber->context);
  fiber->context.uc_stack.ss_sp = fiber->stack;
  fiber->context.uc_stack.ss_size = kStackBytes;
  makecontext(&fiber->context, enter, 0);
  return fiber;
}

// Runs every ready lane of the warp once, until it yields or ends.
void run_lanes() {
  block.turn = 0;
  if (__builtin_setjmp(block.scheduler.data()) == 0) go_on();
}

// Returns what keeps the lane from its exchange; null if all lanes of its mask are there.
const char* obstacle(const Thread& lane) {
  for (unsigned i = 0; i < block.lanes; ++i) {
    const Thread& other = block.threads[block.first + i];
    if (!(lane.mask >> i & 1)) continue;
    if (other.state != State::kAtExchange) return "a mask names a lane that left or waits at a barrier";
    if (other.exchange != lane.exchange) return "lanes of one mask meet at different operations";
    if (other.mask != lane.mask) return "lanes of a warp disagree about the mask";
  }
  return nullptr;
}

// Performs the exchanges whose lanes are all there. Returns true if there was one.
bool settle_exchange() {
  bool any = false;
  for (unsigned i = 0; i < block.lanes; ++i) {
    const Thread lane = block.threads[block.first + i];
    if (lane.state != State::kAtExchange || obstacle(lane)) continue;
    any = true;
    for (unsigned j = 0; j < block.lanes; ++j) {
      Thread& other = block.threads[block.first + j];
      if (!(lane.mask >> j & 1)) continue;
      block.settled[block.first + j] = other.offered;
      other.state = State::kReady;
    }
    if (lane.exchange == Exchange::kSync) sync_lanes(block.first, lane.mask);
  }
  return any;
}

// Returns true if threads stood at the barrier, and releases them. Aborts unless all threads of the block
// reached it. Returns false if all threads are done.
bool settle_barrier() {
  bool any = false;
  for (unsigned i = 0; i < block.threads.size(); ++i) {
    const State state = block.threads[i].state;
    if (state == State::kAtExchange) {
      block.first = i / kWarp * kWarp;
      block.lanes = std::min<unsigned>(kWarp, static_cast<unsigned>(block.threads.size()) - block.first);
      give_up(obstacle(block.threads[i]), i);
    }
    any = any || state == State::kAtBarrier;
  }
  for (unsigned i = 0; any && i < block.threads.size(); ++i)
    if (block.threads[i].state == State::kAtBarrier)
      block.threads[i].state = State::kReady;
    else
      give_up("a thread left before a barrier that others reach", i);
  if (any) pass_barrier();
  return any;
}

// One warp runs as far as it can before the next begins, so that a missing barrier gives a wrong result.
void run_block() {
  const auto count = static_cast<unsigned>(block.threads.size());
  for (Thread& thread : block.threads) thread.state = State::kReady;
  begin_block(blockIdx.y * gridDim.x + blockIdx.x + 1, count);
  block.lane_order = in_order(kWarp);
  block.warp_order = in_order((count + kWarp - 1) / kWarp);
  do {
    for (const unsigned warp : block.warp_order) {
      block.first = warp * kWarp;
      block.lanes = std::min<unsigned>(kWarp, count - block.first);
      do run_lanes();
      while (settle_exchange());
    }
  } while (settle_barrier());
}

}  // namespace

Order order() {
  static const char* const wanted = std::getenv("INGOT_SIMULATED_ORDER");
  static const Order order = !wanted || std::strcmp(wanted, "ascending") == 0 ? Order::kAscending
                             : std::strcmp(wanted, "descending") == 0         ? Order::kDescending
                                                                              : Order::kRandom;
  return order;
}

namespace {
constexpr size_t kMaxShared = 227 << 10, kPlainShared = 48 << 10;
// A variable of the program, as all shared memory is, so that the checker of races sees it.
alignas(16) char shared_memory[kMaxShared];
size_t shared_size_bytes = 0;  // what the running kernel's launch asked for
std::unordered_map<const void*, size_t> allowed_shared_bytes;
}  // namespace

void* dynamic_shared(size_t size_bytes) {
  if (size_bytes > shared_size_bytes)
    give_up("a kernel uses more dynamic shared memory than its launch asked for", block.running);
  return shared_memory;
}

bool allows_dynamic_shared(const void* kernel, size_t size_bytes) {
  if (size_bytes <= kPlainShared) return true;
  const auto found = allowed_shared_bytes.find(kernel);
  return found != allowed_shared_bytes.end() && size_bytes <= found->second;
}

void run_grid(dim3 grid, dim3 block_size, size_t shared_bytes, const std::function<void()>& thread) {
  shared_size_bytes = shared_bytes;
  gridDim = grid;
  blockDim = block_size;
  block.threads.assign(block_size.x * block_size.y, {});
  block.settled.resize(block.threads.size());
  block.body = &thread;
  while (block.fibers.size() < block.threads.size()) {
    block.fibers.push_back(make_fiber());
    block.idle.push_back(block.fibers.back().get());
  }
  for (const unsigned i : in_order(grid.x * grid.y)) {
    blockIdx = {i % grid.x, i / grid.x, 0};
    run_block();
  }
  end_kernel();
}

void block_barrier() { yield(State::kAtBarrier); }

namespace {
void require_self(uint32_t mask) {
  if (!(mask >> block.running % kWarp & 1)) give_up("a mask lacks the lane that calls", block.running);
}

// Waits until all lanes of the mask are at the same exchange.
void meet(uint32_t mask, Exchange exchange, uint64_t offered) {
  Thread& thread = block.threads[block.running];
  thread.offered = offered;
  thread.mask = mask;
  thread.exchange = exchange;
  yield(State::kAtExchange);
}
}  // namespace

uint64_t exchange(uint32_t mask, uint64_t value, int lane) {
  require_self(mask);
  const unsigned self = block.running, from = self / kWarp * kWarp + static_cast<unsigned>(lane);
  if (from >= block.threads.size()) give_up("an exchange with a lane that is not there", self);
  if (!(mask >> static_cast<unsigned>(lane) & 1)) give_up("a shuffle from a lane that the mask lacks", self);
  meet(mask, Exchange::kShuffle, value);
  return block.settled[from];
}

uint32_t ballot(uint32_t mask, bool predicate) {
  const unsigned first = block.running / kWarp * kWarp;
  require_self(mask);
  meet(mask, Exchange::kVote, predicate ? 1 : 0);
  uint32_t bits = 0;
  for (unsigned i = first; i < std::min<size_t>(first + kWarp, block.threads.size()); ++i)
    if (mask >> (i - first) & 1) bits |= static_cast<uint32_t>(block.settled[i]) << (i - first);
  return bits;
}

void sync_warp(uint32_t mask) {
  require_self(mask);
  meet(mask, Exchange::kSync, 0);
}

int lane() { return static_cast<int>(block.running % kWarp); }

}  // namespace simulated_cuda

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  if (attribute != cudaDevAttrMaxSharedMemoryPerBlockOptin || device != 0) return cudaErrorInvalidValue;
  *value = static_cast<int>(simulated_cuda::kMaxShared);
  return cudaSuccess;
}

cudaError_t cudaFuncSetAttribute(const void* kernel, cudaFuncAttribute attribute, int value) {
  const bool is_right = attribute == cudaFuncAttributeMaxDynamicSharedMemorySize && value >= 0 &&
                        static_cast<size_t>(value) <= simulated_cuda::kMaxShared;
  if (!is_right) return cudaErrorInvalidValue;
  simulated_cuda::allowed_shared_bytes[kernel] = static_cast<size_t>(value);
  return cudaSuccess;
}
