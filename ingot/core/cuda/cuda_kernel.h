// Building blocks of kernels: loads and stores of several elements, reductions over warps and blocks,
// the Math of one thread, and the choice of the load width. For .cu files only.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <type_traits>

#include "ingot/core/cuda/cuda_launch.h"
#include "ingot/core/cuda/simulated_traffic.h"
#include "ingot/core/dispatch.h"
#include "ingot/core/tensor.h"

namespace ingot::cuda {

inline constexpr int kWarp = 32;

// W elements in f32.
template <int W>
struct Floats {
  float at[W];
};

// Number of elements of T in one load of 16 bytes.
template <typename T>
inline constexpr int kWide = 16 / static_cast<int>(sizeof(T));

// W elements of T in memory, aligned so that the fewest instructions move them.
template <typename T, int W>
struct alignas(sizeof(T) * W >= 16 ? 16 : sizeof(T) * W) Raw {
  T at[W];
};

// Returns x in f32.
template <typename T>
__device__ __forceinline__ float widened(T x) {
#ifdef __CUDA_ARCH__
  if constexpr (std::is_same_v<T, f16>) {
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(x.bits));
    return value;
  }
#endif
  return static_cast<float>(x);
}

template <typename T, int W>
__device__ __forceinline__ Floats<W> widened(const Raw<T, W>& raw) {
  Floats<W> values;
#pragma unroll
  for (int i = 0; i < W; ++i) values.at[i] = widened(raw.at[i]);
  return values;
}

// Returns p[0 .. W). REQUIRES: p is aligned to min(16, W * sizeof(T)) bytes.
template <int W, typename T>
__device__ __forceinline__ Raw<T, W> load_raw(const T* p) {
  count_read(sizeof(Raw<T, W>));
  return *reinterpret_cast<const Raw<T, W>*>(p);
}

// Returns p[0 .. W) as f32. REQUIRES: p is aligned to min(16, W * sizeof(T)) bytes.
template <int W, typename T>
__device__ __forceinline__ Floats<W> load(const T* p) {
  return widened(load_raw<W>(p));
}

// Packs two numbers as bf16, rounded to nearest even; `low` goes to the low half.
__device__ __forceinline__ uint32_t pack_bf16(float low, float high) {
#ifdef __CUDA_ARCH__
  uint32_t packed;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
  return packed;
#else
  return bf16(low).bits | static_cast<uint32_t>(bf16(high).bits) << 16;
#endif
}

// As pack_bf16, but in f16.
__device__ __forceinline__ uint32_t pack_f16(float low, float high) {
#ifdef __CUDA_ARCH__
  uint32_t packed;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
  return packed;
#else
  return f16(low).bits | static_cast<uint32_t>(f16(high).bits) << 16;
#endif
}

// Packs two numbers as T, which is bf16 or f16; `low` goes to the low half.
template <typename T>
__device__ __forceinline__ uint32_t pack_half(float low, float high) {
  if constexpr (std::is_same_v<T, bf16>)
    return pack_bf16(low, high);
  else
    return pack_f16(low, high);
}

// Returns x rounded to T, in f32.
template <typename T>
__device__ __forceinline__ float rounded(float x) {
  if constexpr (std::is_same_v<T, bf16>) return std::bit_cast<float>(pack_bf16(0.0f, x) & 0xffff0000u);
  if constexpr (std::is_same_v<T, f16>)
    return widened(std::bit_cast<f16>(static_cast<uint16_t>(pack_f16(x, 0.0f))));
  return static_cast<float>(T(x));
}

// Packs two numbers as codes of the 8-bit format by the rule of core/float8.h; `low` goes to the low
// byte. The hardware conversion gives every NaN a positive sign.
template <typename Format>
__device__ __forceinline__ uint16_t pack_fp8(float low, float high) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
  uint16_t packed;
  if constexpr (std::is_same_v<Format, f8e4m3>)
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(packed) : "f"(high), "f"(low));
  else
    asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(packed) : "f"(high), "f"(low));
  return packed;
#else
  return static_cast<uint16_t>(Format(low).bits | Format(high).bits << 8);
#endif
}

// p[0 .. W) = values, rounded to T. REQUIRES: p is aligned as for load.
template <int W, typename T>
__device__ __forceinline__ void store(T* p, const Floats<W>& values) {
  count_written(int64_t{sizeof(T)} * W);
  if constexpr ((std::is_same_v<T, bf16> || std::is_same_v<T, f16>)&&W % 2 == 0) {
    Raw<uint32_t, W / 2> words;
#pragma unroll
    for (int i = 0; i < W / 2; ++i) words.at[i] = pack_half<T>(values.at[2 * i], values.at[2 * i + 1]);
    *reinterpret_cast<Raw<uint32_t, W / 2>*>(p) = words;
  } else if constexpr (sizeof(T) == 1 && W % 2 == 0) {
    Raw<uint16_t, W / 2> words;
#pragma unroll
    for (int i = 0; i < W / 2; ++i) words.at[i] = pack_fp8<T>(values.at[2 * i], values.at[2 * i + 1]);
    *reinterpret_cast<Raw<uint16_t, W / 2>*>(p) = words;
  } else {
    Raw<T, W> raw;
#pragma unroll
    for (int i = 0; i < W; ++i) raw.at[i] = T(values.at[i]);
    *reinterpret_cast<Raw<T, W>*>(p) = raw;
  }
}

// Copies words to p. REQUIRES: p is aligned to min(16, 4 W) bytes.
template <int W, typename T>
__device__ __forceinline__ void store_bytes(T* p, const Raw<uint32_t, W>& words) {
  count_written(sizeof words);
  *reinterpret_cast<Raw<uint32_t, W>*>(p) = words;
}

// Returns the block's dynamic shared memory. REQUIRES: the launch has shared_bytes >= count * sizeof(T).
template <typename T>
__device__ __forceinline__ T* dynamic_shared([[maybe_unused]] int count) {
#ifdef __CUDACC__
  extern __shared__ uint4 dynamic_memory[];
  return reinterpret_cast<T*>(dynamic_memory);
#else
  return static_cast<T*>(simulated_cuda::dynamic_shared(static_cast<size_t>(count) * sizeof(T)));
#endif
}

// Returns the sum over the warp in every lane. The order of the pairwise additions is fixed.
__device__ __forceinline__ float warp_sum(float value) {
#pragma unroll
  for (int mask = kWarp / 2; mask > 0; mask /= 2) value += __shfl_xor_sync(0xffffffffu, value, mask);
  return value;
}

__device__ __forceinline__ float warp_max(float value) {
#pragma unroll
  for (int mask = kWarp / 2; mask > 0; mask /= 2) {
    const float other = __shfl_xor_sync(0xffffffffu, value, mask);
    value = other > value ? other : value;
  }
  return value;
}

// Returns, in every thread, the sum over a group of kThreads threads, which is a warp or the whole block.
template <int kThreads>
__device__ __forceinline__ float group_sum(float value) {
  value = warp_sum(value);
  if constexpr (kThreads > kWarp) {
    __shared__ float of_warp[kThreads / kWarp];
    __syncthreads();  // waits for readers of the previous sum
    if (threadIdx.x % kWarp == 0) of_warp[threadIdx.x / kWarp] = value;
    __syncthreads();
    value = 0;
#pragma unroll
    for (int i = 0; i < kThreads / kWarp; ++i) value += of_warp[i];
  }
  return value;
}

// Returns the maximum over such a group. REQUIRES: no value is NaN.
template <int kThreads>
__device__ __forceinline__ float group_max(float value) {
  value = warp_max(value);
  if constexpr (kThreads > kWarp) {
    __shared__ float of_warp[kThreads / kWarp];
    __syncthreads();  // waits for readers of the previous maximum
    if (threadIdx.x % kWarp == 0) of_warp[threadIdx.x / kWarp] = value;
    __syncthreads();
#pragma unroll
    for (int i = 0; i < kThreads / kWarp; ++i) value = of_warp[i] > value ? of_warp[i] : value;
  }
  return value;
}

// Returns *place, which other blocks may change by atomics.
__device__ __forceinline__ uint32_t load_shared_word(uint32_t* place) {
#ifdef __CUDA_ARCH__
  uint32_t value;
  asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(place) : "memory");
  return value;
#else
  return atomicMax(place, 0u);
#endif
}

// Raises amax, the bits of a number that is not negative (float_bits), to the largest of_thread of all
// threads of the block. NaN is ignored. A block that finds a larger number there makes no atomic.
template <int kBlock>
__device__ __forceinline__ void raise(uint32_t* amax, float of_thread) {
  __shared__ float of_warp[kBlock / kWarp];
  const int thread = static_cast<int>(threadIdx.y * blockDim.x + threadIdx.x);
  float most = warp_max(of_thread);
  if (thread % kWarp == 0) of_warp[thread / kWarp] = most;
  __syncthreads();
  if (thread != 0) return;
#pragma unroll
  for (int i = 0; i < kBlock / kWarp; ++i) most = std::fmax(most, of_warp[i]);
  const auto bits = std::bit_cast<uint32_t>(most);
  if (bits > load_shared_word(amax)) atomicMax(amax, bits);
}

// Returns max(most, |v|) over the W values; NaN is ignored.
template <int W>
__device__ __forceinline__ float larger(float most, const Floats<W>& v) {
#pragma unroll
  for (int i = 0; i < W; ++i) most = std::fmax(most, std::fabs(v.at[i]));
  return most;
}

// The Math of ops/elementwise/activation_rules.h for one thread. For f32 it is exact to a few ulp; for
// bf16 and f16 it uses the special function units, whose error of 2^-21 vanishes in the rounding.
template <typename T>
struct ThreadMath {
  using V = float;
  static constexpr bool kIsFast = !std::is_same_v<T, float>;
  static __host__ __device__ V constant(float x) { return x; }
  static __host__ __device__ V abs(V x) { return std::fabs(x); }
  static __host__ __device__ V exp(V x) {
#ifdef __CUDA_ARCH__
    if constexpr (kIsFast) return __expf(x);
#endif
    return std::exp(x);
  }
  static __host__ __device__ V reciprocal(V x) {
#ifdef __CUDA_ARCH__
    if constexpr (kIsFast) return __fdividef(1.0f, x);
#endif
    return 1.0f / x;
  }
};

// Default number of threads per block: 8 such blocks fill a multiprocessor.
inline constexpr int kThreads = 256;

inline unsigned blocks_for(int64_t items, int64_t items_per_block) {
  const int64_t blocks = (items + items_per_block - 1) / items_per_block;
  INGOT_CHECK(blocks < (int64_t{1} << 31), "a launch of {} blocks is too large", blocks);
  return static_cast<unsigned>(blocks);
}

// Returns the bits of f32 numbers. Numbers that are not negative are ordered like their bits, so atomicMax of
// the bits is the maximum of the numbers.
inline uint32_t* float_bits(const Tensor& t) { return reinterpret_cast<uint32_t*>(t.as<float>()); }
// Returns the bits of t.amax; null if t has no place for it.
inline uint32_t* amax_bits(const Tensor& t) { return reinterpret_cast<uint32_t*>(t.amax); }

inline bool is_aligned(const void* p) { return reinterpret_cast<uintptr_t>(p) % 16 == 0; }

// Returns true if rows of C elements of 2 or 4 bytes can be read 16 bytes at a time from all of the
// tensors. Absent tensors do not count.
template <typename... Tensors>
bool allows_wide(int64_t C, const Tensors&... tensors) {
  return C % 8 == 0 && (is_aligned(tensors.data) && ...);
}

// Calls f with the load width as a constant: kWide<T> or 1.
template <typename T, typename F>
void with_width(bool is_wide, F&& f) {
  if (is_wide)
    f(std::integral_constant<int, kWide<T>>{});
  else
    f(std::integral_constant<int, 1>{});
}

template <typename T>
T* optional(const Tensor& t) {
  return t ? t.as<T>() : nullptr;
}

}  // namespace ingot::cuda
