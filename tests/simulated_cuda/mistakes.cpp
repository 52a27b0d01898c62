#include "tests/simulated_cuda/mistakes.h"

#include <cuda_runtime.h>

#include <array>

#include "tests/simulated_cuda/races.h"

namespace simulated_cuda {
namespace {

constexpr int kThreads = 64;
constexpr unsigned kAll = 0xffffffffu;

cudaStream_t new_stream() {
  cudaStream_t stream = nullptr;
  cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, 0);
  return stream;
}

// Device memory of `count` zeros.
template <typename T>
T* zeros(int count) {
  void* memory = nullptr;
  cudaMalloc(&memory, static_cast<size_t>(count) * sizeof(T));
  cudaMemset(memory, 0, static_cast<size_t>(count) * sizeof(T));
  cudaDeviceSynchronize();
  return static_cast<T*>(memory);
}

int* pinned(int count) {
  void* memory = nullptr;
  cudaHostAlloc(&memory, static_cast<size_t>(count) * sizeof(int), cudaHostAllocDefault);
  cudaMemset(memory, 0, static_cast<size_t>(count) * sizeof(int));
  cudaDeviceSynchronize();
  return static_cast<int*>(memory);
}

template <typename... Params, typename... Args>
void submit(cudaStream_t stream, unsigned blocks, unsigned threads, void (*kernel)(Params...), Args... args) {
  cudaLaunchConfig_t config;
  config.gridDim = dim3(blocks);
  config.blockDim = dim3(threads);
  config.stream = stream;
  cudaLaunchKernelEx(&config, kernel, args...);
}

// Runs a kernel on 64 zeros.
template <typename T>
void run(void (*kernel)(T*), unsigned blocks = 1, unsigned threads = kThreads) {
  cudaStream_t stream = new_stream();
  submit(stream, blocks, threads, kernel, zeros<T>(kThreads));
  cudaStreamSynchronize(stream);
}

// Reverses 64 numbers through shared memory. The barriers that `kBefore` and `kAfter` leave out are mistakes.
template <bool kBefore, bool kAfter>
__global__ void reverse_twice(int* x) {
  __shared__ int tile[kThreads];
  const unsigned t = threadIdx.x;
  tile[t] = x[t];
  if constexpr (kBefore) __syncthreads();
  x[t] = tile[kThreads - 1 - t];
  if constexpr (kAfter) __syncthreads();
  tile[t] = 2 * x[t];
  __syncthreads();
  x[t] = tile[kThreads - 1 - t];
}

// Uses dynamic shared memory, which the launch does not ask for.
__global__ void shared_beyond_the_launch(int* x) {
  int* tile = static_cast<int*>(dynamic_shared(kThreads * sizeof(int)));
  tile[threadIdx.x] = x[threadIdx.x];
  x[threadIdx.x] = tile[threadIdx.x];
}

// Neighbours of a warp exchange numbers through shared memory.
template <bool kSyncs, unsigned kMask>
__global__ void neighbours(int* x) {
  __shared__ int tile[32];
  const unsigned t = threadIdx.x;
  tile[t] = x[t];
  if constexpr (kSyncs)
    if (kMask >> t & 1) __syncwarp(kMask);
  x[t] = tile[t ^ 1];
}

// A shuffle orders no memory.
__global__ void shuffle_for_sync(int* x) {
  __shared__ int tile[32];
  tile[threadIdx.x] = x[threadIdx.x];
  x[threadIdx.x] = __shfl_xor_sync(kAll, tile[threadIdx.x], 1) + tile[threadIdx.x ^ 1];
}

__global__ void sum_of_a_half(int* x) {
  if (threadIdx.x < 16) x[threadIdx.x] = __shfl_xor_sync(kAll, x[threadIdx.x], 1);
}
__global__ void mask_too_small(int* x) { x[threadIdx.x] = __shfl_xor_sync(0x0000ffffu, x[threadIdx.x], 1); }
__global__ void source_outside_the_mask(int* x) {
  if (threadIdx.x < 16) x[threadIdx.x] = __shfl_xor_sync(0x0000ffffu, x[threadIdx.x], 16);
}
__global__ void two_masks(int* x) {
  x[threadIdx.x] =
      threadIdx.x < 16 ? __shfl_sync(kAll, x[threadIdx.x], 0) : __shfl_sync(0xfffff000u, x[threadIdx.x], 16);
}
__global__ void vote_meets_shuffle(int* x) {
  x[threadIdx.x] =
      threadIdx.x < 16 ? __shfl_sync(kAll, 1, 0) : static_cast<int>(__ballot_sync(kAll, x[threadIdx.x] > 0));
}

__global__ void barrier_in_a_branch(int* x) {
  if (threadIdx.x < 32) __syncthreads();
  x[threadIdx.x] = 1;
}

__global__ void blocks_write_one_element(int* x) {
  if (threadIdx.x == 0) x[0] = static_cast<int>(blockIdx.x);
}
__global__ void block_reads_its_neighbour(int* x) {
  if (threadIdx.x == 0) x[blockIdx.x] = x[(blockIdx.x + 1) % gridDim.x];
}
__global__ void threads_write_one_element(int* x) { x[threadIdx.x / 2] = static_cast<int>(threadIdx.x); }
__global__ void warps_write_one_element(int* x) { x[threadIdx.x % 32] = 1; }
__global__ void atomic_and_store(int* x) {
  if (threadIdx.x == 0) x[0] = 1;
  if (threadIdx.x == 40) atomicAdd(x, 1);
}
// A byte of a word that another warp wrote whole, and whole words of which other warps wrote the bytes.
template <bool kHasBarrier>
__global__ void byte_of_a_word(int* x) {
  x[threadIdx.x] = 1;
  if constexpr (kHasBarrier) __syncthreads();
  reinterpret_cast<char*>(x)[4 * ((threadIdx.x + 32) % kThreads) + 2] = 3;
}
template <bool kHasBarrier>
__global__ void word_of_bytes(int* x) {
  auto* bytes = reinterpret_cast<char*>(x);
  for (unsigned i = 0; i < 4; ++i) bytes[kThreads * i + threadIdx.x] = 1;
  if constexpr (kHasBarrier) __syncthreads();
  const int word = x[(threadIdx.x + 32) % kThreads];
  __syncthreads();
  x[threadIdx.x] = word;
}
__global__ void two_write_one_byte(int* x) { reinterpret_cast<char*>(x)[threadIdx.x % 63] = 1; }

__global__ void count_without_atomics(int* x) { x[0] = x[0] + 1; }

__global__ void half_a_tile(int* x) {
  __shared__ int tile[kThreads];
  if (threadIdx.x < 48) tile[threadIdx.x] = x[threadIdx.x];
  __syncthreads();
  x[threadIdx.x] = tile[threadIdx.x];
}
__global__ void one_too_many(int* x) { x[threadIdx.x + 1] = 1; }
__global__ void one_too_many_read(int* x) {
  if (threadIdx.x == kThreads - 1) x[threadIdx.x] = x[threadIdx.x + 1];
}
__global__ void misaligned_pack(float* x) {
  if (threadIdx.x == 0) *reinterpret_cast<float4*>(x + 4) = *reinterpret_cast<float4*>(x + 1);
}
__global__ void doubled(int* x) { x[threadIdx.x] *= 2; }
__global__ void counted(int* x) { atomicAdd(x, 1); }

void freed_too_early() {
  cudaStream_t stream = new_stream();
  int* x = zeros<int>(kThreads);
  cudaFree(x);
  submit(stream, 1, kThreads, doubled, x);
  cudaStreamSynchronize(stream);
}
void never_written() {
  cudaStream_t stream = new_stream();
  void* x = nullptr;
  cudaMalloc(&x, kThreads * sizeof(int));
  submit(stream, 1, kThreads, doubled, static_cast<int*>(x));
  cudaStreamSynchronize(stream);
}
void kernel_on_the_heap() {
  cudaStream_t stream = new_stream();
  auto* x = new int[kThreads]();
  submit(stream, 1, kThreads, doubled, x);
  cudaStreamSynchronize(stream);
  delete[] x;
}
void copy_too_long() {
  cudaStream_t stream = new_stream();
  int *x = zeros<int>(kThreads), *y = zeros<int>(2 * kThreads);
  cudaMemcpyAsync(x, y, 2 * kThreads * sizeof(int), cudaMemcpyDefault, stream);
  cudaStreamSynchronize(stream);
}

// A copy to the device, a kernel there on another stream, and a copy back, with what orders them left out one
// by one.
enum class Omitted { kNothing, kWait, kRightStream, kRecord, kHostWait, kPinnedWait, kFillWait };

void pipeline(Omitted omitted) {
  cudaStream_t copies = new_stream(), work = new_stream();
  int *x = zeros<int>(kThreads), *from = pinned(kThreads), *to = pinned(kThreads);
  cudaEvent_t copied = nullptr, worked = nullptr;
  cudaEventCreate(&copied);
  cudaEventCreate(&worked);
  for (int i = 0; i < kThreads; ++i) from[i] = i;
  cudaMemcpyAsync(x, from, kThreads * sizeof(int), cudaMemcpyDefault, copies);
  if (omitted != Omitted::kRecord) cudaEventRecord(copied, omitted == Omitted::kRightStream ? work : copies);
  if (omitted == Omitted::kPinnedWait) from[3] = 7;  // the copy may not have read it yet
  if (omitted != Omitted::kWait) cudaStreamWaitEvent(work, copied, 0);
  submit(work, 1, kThreads, doubled, x);
  cudaEventRecord(worked, work);
  cudaStreamWaitEvent(copies, worked, 0);
  cudaMemcpyAsync(to, x, kThreads * sizeof(int), cudaMemcpyDefault, copies);
  if (omitted != Omitted::kHostWait) cudaStreamSynchronize(copies);
  int sum = 0;
  for (int i = 0; i < kThreads; ++i) sum += to[i];
  from[0] = sum;
  if (omitted == Omitted::kFillWait) cudaMemsetAsync(x, 0, kThreads * sizeof(int), copies);
  submit(work, 1, kThreads, doubled, x);
  cudaStreamSynchronize(copies);
  cudaStreamSynchronize(work);
}
template <Omitted kOmitted>
void pipeline() {
  pipeline(kOmitted);
}

// A copy is done before a kernel on another stream is submitted. Only a query tells the host so.
template <bool kAsks>
void done_by_chance() {
  cudaStream_t copies = new_stream(), work = new_stream(), shared = new_stream();
  int *x = zeros<int>(kThreads), *from = pinned(kThreads), *other = zeros<int>(kThreads);
  cudaEvent_t copied = nullptr;
  cudaEventCreate(&copied);
  cudaMemcpyAsync(x, from, kThreads * sizeof(int), cudaMemcpyDefault, copies);
  cudaEventRecord(copied, copies);
  int polls = 0;  // while `shared` waits for other ranks, the copy is made
  enqueue_shared(
      shared, [&] { return ++polls > 4; }, [] {}, {{other, kThreads * sizeof(int), true}}, nullptr);
  cudaStreamSynchronize(shared);
  if (kAsks && cudaEventQuery(copied) != cudaSuccess) report("the copy was not made meanwhile");
  submit(work, 1, kThreads, doubled, x);
  cudaStreamSynchronize(work);
  cudaStreamSynchronize(copies);
}

template <typename T, void (*kKernel)(T*), unsigned kBlocks = 1, unsigned kSize = kThreads>
void in() {
  run(kKernel, kBlocks, kSize);
}

constexpr const char* kNoBarrier = "race in a block: __syncthreads is missing";
constexpr const char* kNoSync = "race in a warp: __syncwarp is missing";
constexpr const char* kNoEvent = "race between streams: no event orders the two operations";

constexpr std::array kMistakes = {
    Mistake{"NoBarrierBeforeARead", kNoBarrier, in<int, reverse_twice<false, true>>},
    Mistake{"NoBarrierBeforeAWrite", kNoBarrier, in<int, reverse_twice<true, false>>},
    Mistake{"NoSyncOfAWarp", kNoSync, in<int, neighbours<false, kAll>, 1, 32>},
    Mistake{"SyncOfTooFewLanes", kNoSync, in<int, neighbours<true, 0x00ffffffu>, 1, 32>},
    Mistake{"ShuffleInPlaceOfASync", kNoSync, in<int, shuffle_for_sync, 1, 32>},
    Mistake{"ThreadsWriteOneElement", kNoSync, in<int, threads_write_one_element>},
    Mistake{"WarpsWriteOneElement", kNoBarrier, in<int, warps_write_one_element>},
    Mistake{"ByteOfAWord", kNoBarrier, in<int, byte_of_a_word<false>>},
    Mistake{"WordOfBytes", kNoSync, in<int, word_of_bytes<false>>},
    Mistake{"TwoWriteOneByte", kNoBarrier, in<int, two_write_one_byte>},
    Mistake{"CountWithoutAtomics", kNoSync, in<int, count_without_atomics>},
    Mistake{"MaskOfLanesThatLeft", "a mask names a lane that left or waits at a barrier",
            in<int, sum_of_a_half, 1, 32>},
    Mistake{"MaskTooSmall", "a mask lacks the lane that calls", in<int, mask_too_small, 1, 32>},
    Mistake{"SourceOutsideTheMask", "a shuffle from a lane that the mask lacks",
            in<int, source_outside_the_mask, 1, 32>},
    Mistake{"TwoMasks", "lanes of a warp disagree about the mask", in<int, two_masks, 1, 32>},
    Mistake{"VoteMeetsShuffle", "lanes of one mask meet at different operations",
            in<int, vote_meets_shuffle, 1, 32>},
    Mistake{"BarrierInABranch", "a thread left before a barrier that others reach",
            in<int, barrier_in_a_branch>},
    Mistake{"BlocksWriteOneElement", "race between blocks", in<int, blocks_write_one_element, 4>},
    Mistake{"BlockReadsItsNeighbour", "race between blocks", in<int, block_reads_its_neighbour, 4>},
    Mistake{"AtomicAndStore", "race of an atomic and a plain access", in<int, atomic_and_store>},
    Mistake{"UninitialisedSharedMemory", "read of uninitialised shared memory", in<int, half_a_tile>},
    Mistake{"SharedMemoryBeyondTheLaunch", "more dynamic shared memory than its launch asked for",
            in<int, shared_beyond_the_launch>},
    Mistake{"UninitialisedDeviceMemory", "read of uninitialised device memory", never_written},
    Mistake{"WriteBeyondAnAllocation", "access beyond a device allocation", in<int, one_too_many>},
    Mistake{"ReadBeyondAnAllocation", "access beyond a device allocation",
            in<int, one_too_many_read, 1, kThreads>},
    Mistake{"CopyBeyondAnAllocation", "access beyond a device allocation", copy_too_long},
    Mistake{"MisalignedPack", "misaligned access", in<float, misaligned_pack>},
    Mistake{"UseAfterFree", "use of freed device memory", freed_too_early},
    Mistake{"KernelOnTheHeap", "a kernel writes memory of the host", kernel_on_the_heap},
    Mistake{"NoWaitBetweenStreams", kNoEvent, pipeline<Omitted::kWait>},
    Mistake{"EventOnTheWrongStream", kNoEvent, pipeline<Omitted::kRightStream>},
    Mistake{"FillBesideAKernel", kNoEvent, pipeline<Omitted::kFillWait>},
    Mistake{"DoneByChance", kNoEvent, done_by_chance<false>},
    Mistake{"EventNeverRecorded", "a stream waits for an event that was never recorded",
            pipeline<Omitted::kRecord>},
    Mistake{"PinnedMemoryReusedTooEarly", "the host changes memory that a copy has yet to read",
            pipeline<Omitted::kPinnedWait>},
    Mistake{"ResultReadTooEarly", "the host uses memory that a copy has yet to write",
            pipeline<Omitted::kHostWait>},
};

}  // namespace

std::span<const Mistake> mistakes() { return kMistakes; }

void make_none() {
  run(reverse_twice<true, true>);
  run(neighbours<true, kAll>, 1, 32);
  run(byte_of_a_word<true>);
  run(word_of_bytes<true>);
  run(counted, 4);
  pipeline(Omitted::kNothing);
  done_by_chance<true>();
}

}  // namespace simulated_cuda
