// The memory of the simulated device as a checker of races sees it. The compiler instruments the kernels'
// loads and stores (-fsanitize=thread), each of which calls races.cpp. For every byte of shared and global
// memory, races.cpp keeps the last write and the last reads.
//
// Two accesses of one byte race if at least one is a write, not both are atomic, and nothing orders them: a
// barrier in their block, __syncwarp in their warp (shuffles and votes order no memory), or the order of
// streams, events and the host's waits. A race ends the process with a sentence that names it and its line.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace simulated_cuda {

// Prints "simulated CUDA: WHAT: ..." and aborts.
[[noreturn]] void report(const char* what, const char* detail = "");

// Clock counts the operations of each stream that are known to be done. The index is the stream's number.
using Clock = std::vector<uint32_t>;
void join(Clock& clock, const Clock& other);

// The host's knowledge; an operation of a stream inherits it when it is submitted.
Clock& host_clock();
// Begins an operation of a stream: later accesses belong to it. `clock` is what the operation is ordered
// behind.
void begin_operation(size_t stream, const Clock& clock);
void end_operation();

// Blocks and threads of the running kernel.
void begin_block(uint32_t block, uint32_t threads);
void pass_barrier();                                    // all threads of the block
void sync_lanes(uint32_t first_thread, uint32_t mask);  // __syncwarp
void set_thread(uint32_t thread);
void end_kernel();
void set_stacks(const char* begin, size_t size_bytes);  // accesses there are a thread's own

// Device memory, and host memory that copies use.
void add_memory(const void* begin, size_t size_bytes, size_t mapped_bytes);
void forget_memory(const void* begin);  // later accesses are uses after the free
void initialise_memory(const void* begin);

// Accesses of whole ranges by copies, fills and products of the running operation.
void access_range(const void* begin, size_t size_bytes, bool is_write);
void access_atomically(const void* place, size_t size_bytes);

// Host memory that submitted copies have yet to read or write; checked at every instrumented access of the
// host.
void add_pending(const void* begin, size_t size_bytes, bool is_write);
void remove_pending(const void* begin, size_t size_bytes, bool is_write);

}  // namespace simulated_cuda
