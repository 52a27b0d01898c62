// This header declares the functions by which tests observe and control the simulated NCCL (nccl.cpp), and
// the two by which group_nccl.cpp finds it: that file is compiled with these in place of dlopen and dlsym.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace simulated_cuda {
struct Stream;
}  // namespace simulated_cuda

extern "C" void* simulated_nccl_open(const char* name, int flags) noexcept;
extern "C" void* simulated_nccl_find(void* library, const char* name) noexcept;

namespace simulated_nccl {

// Returns what has happened since the last call, in order: "all_gather" when a collective was called, "end
// all_gather" when it ended.
std::vector<std::string> take_record();
// Adds `what` to the record when the stream gets there.
void record_in(simulated_cuda::Stream* stream, const std::string& what);
// Blocks until all operations that can begin have begun. The stream must be empty.
void let_device_run(simulated_cuda::Stream* stream);
// Puts a NaN into what this rank receives by the next reduce_scatter of at least so many f32 numbers.
void spoil_next_reduce_scatter(size_t least);

}  // namespace simulated_nccl
