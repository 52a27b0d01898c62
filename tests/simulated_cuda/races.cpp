#include "tests/simulated_cuda/races.h"

#include <dlfcn.h>
#include <pthread.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <utility>

#include "tests/simulated_cuda/cuda_runtime.h"

extern "C" char __data_start, _end;  // the program's variables, among them all __shared__ ones

namespace simulated_cuda {
namespace {

constexpr uint32_t kWarp = 32, kManyWarps = 63, kManyBlocks = ~0u;
constexpr size_t kPage = 4096, kWord = 4;

// The last write of a byte, or its last reads, by threads of one block between two barriers.
struct Record {
  uint32_t operation = 0;  // 0: never
  uint32_t block = 0, lanes = 0;
  uint32_t epoch : 12 = 0, clock : 12 = 0, warp : 6 = 0, is_atomic : 1 = 0;
  uint32_t is_split : 1 = 0;  // in the cell of a word: see Cells
};

struct Cell {
  Record write, read;
};

// The cells of a range of memory. While all accesses of an aligned word take the whole word, it has one cell.
// The first access of a part gives each byte its own, for good.
struct Cells {
  Cell* of_words = nullptr;
  Cell* of_bytes = nullptr;

  const Cell& at(size_t byte) const {
    const Cell& word = of_words[byte / kWord];
    return word.write.is_split ? of_bytes[byte] : word;
  }
};

struct Region {
  size_t size_bytes = 0, mapped_bytes = 0;
  Cells cells;
  std::vector<uint32_t> last;  // by page: the last operation that touched it
  bool is_freed = false, is_initialised = false;
};

struct Operation {
  size_t stream = 0;
  Clock clock;
};
struct Range {
  const char* begin = nullptr;
  const char* end = nullptr;
  uint32_t operation = 0;
  bool is_write = false;
  pthread_t owner = 0;  // the thread that submitted it, if it is a copy that has yet to run
};

// A read of shared memory that nothing had written. A write that follows before the next barrier makes it a
// race; otherwise the barrier or the block's end reports it.
struct Unwritten {
  const void *at = nullptr, *code = nullptr;
  uint32_t thread = 0;
};

// The running thread, block and operation.
struct Current {
  uint32_t operation = 0, block = 0, thread = 0, epoch = 0;
  bool is_kernel = false;
  Record record;         // what the running thread leaves in a cell
  uint32_t ordered = 0;  // an operation that the running one is known to be ordered behind
  std::vector<std::array<uint16_t, kWarp>> known;  // by thread: the clocks of its warp's lanes that it knows
};

Current now;
Clock host;
std::vector<Operation> operations(1);
std::map<const char*, Region> regions;
bool is_region_new = false;          // memory was added since the last search, maybe where freed memory was
std::vector<Range> ranges, pending;  // copies that ran, and copies that have yet to run
std::vector<Range> unordered;        // those of `ranges` that the running kernel is not ordered behind
Unwritten unwritten;
const char *stacks = nullptr, *stacks_end = nullptr;

Cell* make_cells(size_t count) {
  void* cells = mmap(nullptr, count * sizeof(Cell), PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (cells == MAP_FAILED) report("no memory for the checker");
  return static_cast<Cell*>(cells);
}

Cells cells_of(size_t size_bytes) {
  const size_t words = size_bytes / kWord + 1;
  return {make_cells(words), make_cells(words * kWord)};
}

void free_cells(const Cells& cells, size_t size_bytes) {
  const size_t words = size_bytes / kWord + 1;
  munmap(cells.of_words, words * sizeof(Cell));
  munmap(cells.of_bytes, words * kWord * sizeof(Cell));
}

// Returns the last region that begins at or before `at`; null if there is none near it.
Region* region_at(const char* at, const char*& begin) {
  static const char* cached_begin = nullptr;
  static Region* cached = nullptr;
  if (cached && !is_region_new && at >= cached_begin && at < cached_begin + cached->mapped_bytes) {
    begin = cached_begin;
    return cached;
  }
  is_region_new = false;
  cached = nullptr;
  auto next = regions.upper_bound(at);
  if (next == regions.begin()) return nullptr;
  --next;
  if (at >= next->first + next->second.mapped_bytes) return nullptr;
  cached_begin = begin = next->first;
  return cached = &next->second;
}

bool is_ordered(uint32_t earlier, uint32_t later) {
  const Operation &a = operations[earlier], &b = operations[later];
  if (a.stream == b.stream) return true;
  return a.stream < b.clock.size() && b.clock[a.stream] >= a.clock[a.stream];
}

// Returns true if everything in the record happened before the running thread's access.
bool precedes(const Record& r, bool is_shared) {
  if (r.operation == 0) return true;
  if (r.operation != now.operation) {
    if (is_shared || r.operation == now.ordered) return true;
    if (!is_ordered(r.operation, now.operation)) return false;
    now.ordered = r.operation;
    return true;
  }
  if (r.block != now.block) return is_shared;
  if (r.epoch != (now.epoch & 0xfff)) return true;
  if (r.warp != now.thread / kWarp) return false;
  const uint32_t self = now.thread % kWarp;
  for (uint32_t lanes = r.lanes & ~(1u << self); lanes; lanes &= lanes - 1)
    if (now.known[now.thread][static_cast<size_t>(__builtin_ctz(lanes))] < r.clock) return false;
  return true;
}

// Prints the source line of an address of this program, if binutils are there.
void print_line(const void* code) {
  Dl_info info{};
  if (!code || !dladdr(code, &info)) return;
  std::array<char, 512> command{};
  const auto offset =
      static_cast<size_t>(static_cast<const char*>(code) - static_cast<char*>(info.dli_fbase));
  const bool is_fixed = reinterpret_cast<size_t>(info.dli_fbase) == 0x400000;
  std::snprintf(command.data(), command.size(), "addr2line -Cfpe %s 0x%zx >&2 2>/dev/null", info.dli_fname,
                (is_fixed ? reinterpret_cast<size_t>(code) : offset) - 1);
  std::fflush(stderr);
  if (std::system(command.data()) != 0) std::fprintf(stderr, "(addr2line is not installed)\n");
}

[[noreturn]] void report_access(const char* what, bool is_write, const void* at, const void* code) {
  std::array<char, 256> detail{};
  std::snprintf(detail.data(), detail.size(), "a %s of %p by block (%u, %u), thread %u",
                is_write ? "write" : "read", at, blockIdx.x, blockIdx.y, now.thread);
  print_line(code);
  report(what, detail.data());
}

void report_unwritten() {
  if (!unwritten.at) return;
  now.thread = unwritten.thread;
  report_access("read of uninitialised shared memory", false, unwritten.at, unwritten.code);
}

const char* name_of_race(const Record& other, bool is_atomic, bool is_shared) {
  if (other.operation != now.operation) return "race between streams: no event orders the two operations";
  if (is_atomic != static_cast<bool>(other.is_atomic) && (is_atomic || other.is_atomic))
    return "race of an atomic and a plain access";
  if (!is_shared && other.block != now.block) return "race between blocks";
  if (other.warp == now.thread / kWarp) return "race in a warp: __syncwarp is missing";
  return "race in a block: __syncthreads is missing";
}

void remember_read(Record& read, const Record& mine) {
  if (read.operation != mine.operation || (read.block == mine.block && read.epoch != mine.epoch)) {
    read = mine;
  } else if (read.block != mine.block) {
    read.block = kManyBlocks;
  } else if (read.warp != mine.warp) {
    read.warp = kManyWarps;
  } else {
    read.lanes |= mine.lanes;
    read.clock = std::max(read.clock, mine.clock);
  }
}

struct Access {
  const char* at;
  size_t size_bytes;
  bool is_write, is_atomic, is_shared;
  const void* code;
};

void check_cell(const Cell& cell, const Access& a, const char* at) {
  if (a.is_shared && !a.is_write && (cell.write.operation != now.operation || cell.write.block != now.block))
    unwritten = {at, a.code, now.thread};
  if (!(a.is_atomic && cell.write.is_atomic && cell.write.operation == now.operation) &&
      !precedes(cell.write, a.is_shared))
    report_access(name_of_race(cell.write, a.is_atomic, a.is_shared), a.is_write, at, a.code);
  const bool is_other_block = a.is_shared && cell.read.block != now.block;
  if (a.is_write && !is_other_block && !precedes(cell.read, a.is_shared))
    report_access(name_of_race(cell.read, a.is_atomic, a.is_shared), true, at, a.code);
}

void remember(Cell& cell, const Access& a) {
  if (!a.is_write) return remember_read(cell.read, now.record);
  cell.write = now.record;
  cell.write.is_atomic = a.is_atomic;
}

// Checks an access of the bytes from `offset` on, and remembers it. Byte 0 of the cells is the first of a
// word.
void check_cells(const Cells& cells, size_t offset, const Access& a) {
  const size_t end = offset + a.size_bytes;
  for (size_t i = offset; i < end;) {
    Cell& word = cells.of_words[i / kWord];
    const bool is_whole = i % kWord == 0 && i + kWord <= end;
    if (!is_whole && !word.write.is_split) {
      std::fill_n(cells.of_bytes + i / kWord * kWord, kWord, word);
      word.write.is_split = 1;
    }
    Cell& cell = word.write.is_split ? cells.of_bytes[i] : word;
    check_cell(cell, a, a.at + (i - offset));
    remember(cell, a);
    i += word.write.is_split ? 1 : kWord;
  }
}

void check_host(const char* at, size_t size_bytes, bool is_write, const void* code) {
  for (const Range& use : pending) {
    if (at >= use.end || at + size_bytes <= use.begin || !(is_write || use.is_write) ||
        use.owner != pthread_self())
      continue;
    print_line(code);
    report(use.is_write ? "the host uses memory that a copy has yet to write"
                        : "the host changes memory that a copy has yet to read");
  }
}

bool is_builtin(const char* at) {
  const void* place = at;
  const auto within = [&](const auto& variable) { return place >= &variable && place < &variable + 1; };
  return within(threadIdx) || within(blockIdx) || within(blockDim) || within(gridDim);
}

void check_ranges(const Access& a) {
  for (const Range& r : unordered)
    if (a.at < r.end && a.at + a.size_bytes > r.begin && (a.is_write || r.is_write))
      report_access("race between streams: no event orders the two operations", a.is_write, a.at, a.code);
}

void check_region(const Access& a, Region& region, const char* begin) {
  if (region.is_freed) report_access("use of freed device memory", a.is_write, a.at, a.code);
  const auto offset = static_cast<size_t>(a.at - begin);
  if (offset + a.size_bytes > region.size_bytes)
    report_access("access beyond a device allocation", a.is_write, a.at, a.code);
  region.last[offset / kPage] = region.last[(offset + a.size_bytes - 1) / kPage] = now.operation;
  check_ranges(a);
  if (!a.is_write && !region.is_initialised && region.cells.at(offset).write.operation == 0)
    report_access("read of uninitialised device memory", false, a.at, a.code);
  check_cells(region.cells, offset, a);
}

void check(const void* place, size_t size_bytes, bool is_write, bool is_atomic, const void* code) {
  const auto* at = static_cast<const char*>(place);
  if (!now.is_kernel) {
    if (!pending.empty() && now.operation == 0) check_host(at, size_bytes, is_write, code);
    return;
  }
  if (at >= stacks && at < stacks_end) return;
  Access a{at, size_bytes, is_write, is_atomic, false, code};
  if (at >= &__data_start && at < &_end) {
    if (is_builtin(at)) return;
    static const char* const first = &__data_start - reinterpret_cast<uintptr_t>(&__data_start) % kWord;
    static const Cells cells = cells_of(static_cast<size_t>(&_end - first));
    a.is_shared = true;
    return check_cells(cells, static_cast<size_t>(at - first), a);
  }
  const char* begin = nullptr;
  if (Region* region = region_at(at, begin)) return check_region(a, *region, begin);
  if (is_write) report_access("a kernel writes memory of the host", true, at, code);
}

}  // namespace

void report(const char* what, const char* detail) {
  std::fprintf(stderr, "simulated CUDA: %s%s%s\n", what, *detail ? ": " : "", detail);
  std::abort();
}

void join(Clock& clock, const Clock& other) {
  if (clock.size() < other.size()) clock.resize(other.size());
  for (size_t i = 0; i < other.size(); ++i) clock[i] = std::max(clock[i], other[i]);
}

Clock& host_clock() { return host; }

void begin_operation(size_t stream, const Clock& clock) {
  now.operation = static_cast<uint32_t>(operations.size());
  now.ordered = 0;
  operations.push_back({stream, clock});
  std::erase_if(ranges, [&](const Range& r) {  // what the host has waited for precedes everything to come
    const Operation& o = operations[r.operation];
    return o.stream < host.size() && host[o.stream] >= o.clock[o.stream] &&
           is_ordered(r.operation, now.operation);
  });
  unordered.clear();
  for (const Range& r : ranges)
    if (!is_ordered(r.operation, now.operation)) unordered.push_back(r);
}
void end_operation() { now.operation = 0; }

void begin_block(uint32_t block, uint32_t threads) {
  report_unwritten();
  now.is_kernel = true;
  now.block = block;
  now.epoch = 0;
  now.known.resize(threads);
  pass_barrier();
}
void pass_barrier() {
  report_unwritten();
  ++now.epoch;
  for (size_t i = 0; i < now.known.size(); ++i) {
    now.known[i].fill(0);
    now.known[i][i % kWarp] = 1;
  }
}
void sync_lanes(uint32_t first_thread, uint32_t mask) {
  std::array<uint16_t, kWarp> all{};
  const size_t lanes = std::min<size_t>(kWarp, now.known.size() - first_thread);
  for (size_t lane = 0; lane < lanes; ++lane)
    for (size_t i = 0; mask >> lane & 1 && i < kWarp; ++i)
      all[i] = std::max(all[i], now.known[first_thread + lane][i]);
  for (size_t lane = 0; lane < lanes; ++lane)
    if (mask >> lane & 1) {
      now.known[first_thread + lane] = all;
      ++now.known[first_thread + lane][lane];
    }
}
void set_thread(uint32_t thread) {
  const uint32_t lane = thread % kWarp;
  now.thread = thread;
  now.record.operation = now.operation;
  now.record.block = now.block;
  now.record.lanes = 1u << lane;
  now.record.epoch = now.epoch & 0xfff;
  now.record.clock = now.known[thread][lane];
  now.record.warp = thread / kWarp;
}
void end_kernel() {
  report_unwritten();
  now.is_kernel = false;
}
void set_stacks(const char* begin, size_t size_bytes) {
  stacks = begin;
  stacks_end = begin + size_bytes;
}

void add_memory(const void* begin, size_t size_bytes, size_t mapped_bytes) {
  is_region_new = true;
  regions[static_cast<const char*>(begin)] = {size_bytes, mapped_bytes, cells_of(size_bytes),
                                              std::vector<uint32_t>(size_bytes / kPage + 1)};
}
void forget_memory(const void* begin) {
  Region& region = regions.at(static_cast<const char*>(begin));
  free_cells(std::exchange(region.cells, {}), region.size_bytes);
  region.is_freed = true;
}
void initialise_memory(const void* begin) {
  const auto found = regions.find(static_cast<const char*>(begin));
  if (found != regions.end()) found->second.is_initialised = true;
}

void access_range(const void* place, size_t size_bytes, bool is_write) {
  const auto* at = static_cast<const char*>(place);
  if (size_bytes == 0 || now.operation == 0) return;
  const Access a{at, size_bytes, is_write, false, false, nullptr};
  check_ranges(a);
  const char* begin = nullptr;
  if (Region* region = region_at(at, begin)) {
    if (region->is_freed) report_access("use of freed device memory", is_write, at, nullptr);
    const auto offset = static_cast<size_t>(at - begin);
    if (offset + size_bytes > region->size_bytes)
      report_access("access beyond a device allocation", is_write, at, nullptr);
    if (is_write) region->is_initialised = true;
    for (size_t i = offset; i < offset + size_bytes; ++i) {
      const uint32_t last = region->last[i / kPage];
      if (last == 0 || is_ordered(last, now.operation)) {
        i = i / kPage * kPage + kPage - 1;
        continue;
      }
      const Cell& cell = region->cells.at(i);
      for (const Record* r : {&cell.write, &cell.read})
        if (r->operation && (is_write || r == &cell.write) && !is_ordered(r->operation, now.operation))
          report_access("race between streams: no event orders the two operations", is_write, at, nullptr);
    }
  }
  ranges.push_back({at, at + size_bytes, now.operation, is_write});
}

void access_atomically(const void* place, size_t size_bytes) {
  check(place, size_bytes, true, true, __builtin_return_address(0));
}

void add_pending(const void* begin, size_t size_bytes, bool is_write) {
  const auto* first = static_cast<const char*>(begin);
  pending.push_back({first, first + size_bytes, 0, is_write, pthread_self()});
}
void remove_pending(const void* begin, size_t size_bytes, bool is_write) {
  const auto* first = static_cast<const char*>(begin);
  const auto found = std::find_if(pending.begin(), pending.end(), [&](const Range& r) {
    return r.begin == first && r.end == first + size_bytes && r.is_write == is_write;
  });
  if (found != pending.end()) pending.erase(found);
}

}  // namespace simulated_cuda

// The functions that the compiler calls before each load and store.
#define INGOT_ACCESS(N)                                                       \
  extern "C" void __tsan_read##N(void* at) {                                  \
    simulated_cuda::check_aligned(at, N, false, __builtin_return_address(0)); \
  }                                                                           \
  extern "C" void __tsan_write##N(void* at) {                                 \
    simulated_cuda::check_aligned(at, N, true, __builtin_return_address(0));  \
  }                                                                           \
  extern "C" void __tsan_unaligned_read##N(void* at) {                        \
    simulated_cuda::check(at, N, false, false, __builtin_return_address(0));  \
  }                                                                           \
  extern "C" void __tsan_unaligned_write##N(void* at) {                       \
    simulated_cuda::check(at, N, true, false, __builtin_return_address(0));   \
  }
namespace simulated_cuda {
namespace {
// A device faults where an address is no multiple of the access's size.
void check_aligned(void* at, size_t size_bytes, bool is_write, const void* code) {
  if (now.is_kernel && reinterpret_cast<uintptr_t>(at) % size_bytes != 0)
    report_access("misaligned access", is_write, at, code);
  check(at, size_bytes, is_write, false, code);
}
}  // namespace
}  // namespace simulated_cuda
INGOT_ACCESS(1)
INGOT_ACCESS(2)
INGOT_ACCESS(4)
INGOT_ACCESS(8)
INGOT_ACCESS(16)
extern "C" void __tsan_read_range(void* at, size_t size_bytes) {
  simulated_cuda::check(at, size_bytes, false, false, __builtin_return_address(0));
}
extern "C" void __tsan_write_range(void* at, size_t size_bytes) {
  simulated_cuda::check(at, size_bytes, true, false, __builtin_return_address(0));
}
// The compiler asks so whether a host function's static variable is initialised.
extern "C" char __tsan_atomic8_load(const volatile char* at, int) {
  return __atomic_load_n(at, __ATOMIC_ACQUIRE);
}
// Pointers that host functions share are counted so.
extern "C" int __tsan_atomic32_fetch_add(volatile int* at, int number, int) {
  return __atomic_fetch_add(at, number, __ATOMIC_ACQ_REL);
}
extern "C" void __tsan_init() {}
extern "C" void __tsan_func_entry(void*) {}
extern "C" void __tsan_func_exit() {}
extern "C" void __tsan_vptr_update(void*, void*) {}
extern "C" void __tsan_vptr_read(void*) {}
