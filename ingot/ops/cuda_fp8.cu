#include "ingot/ops/cuda_fp8.h"

#include "ingot/ops/cuda_elementwise.h"

namespace ingot::cuda {
namespace {

// Of one thread; added up over the block, then with integers that know no order.
struct Tally {
  float amax = 0;
  uint32_t saturated = 0, underflowed = 0;

  // Counts x and returns it scaled.
  template <typename Format>
  __device__ __forceinline__ float take(float x, float scale) {
    const float magnitude = std::fabs(x), scaled = x * scale;
    amax = magnitude > amax ? magnitude : amax;
    saturated += Format::saturates(scaled) ? 1u : 0u;
    underflowed += Format::underflows(scaled) ? 1u : 0u;
    return scaled;
  }
};

struct Meter {
  uint32_t *amax, *counts;
};

// Magnitudes order as their bits do.
__device__ __forceinline__ void raise(uint32_t* amax, float of_thread) {
  const float of_warp = warp_max(of_thread);
  if (threadIdx.x % kWarp == 0 && of_warp > 0) atomicMax(amax, std::bit_cast<uint32_t>(of_warp));
}

__device__ __forceinline__ uint32_t warp_total(uint32_t value) {
#pragma unroll
  for (int mask = kWarp / 2; mask > 0; mask /= 2) value += __shfl_xor_sync(0xffffffffu, value, mask);
  return value;
}

__device__ __forceinline__ void report(const Meter& meter, const Tally& tally) {
  raise(meter.amax, tally.amax);
  const uint32_t saturated = warp_total(tally.saturated), underflowed = warp_total(tally.underflowed);
  if (threadIdx.x % kWarp != 0) return;
  if (saturated > 0) atomicAdd(meter.counts, saturated);
  if (underflowed > 0) atomicAdd(meter.counts + 1, underflowed);
}

// Packs of W elements for each of `blocks` blocks in turn: few blocks, so that few of them report.
constexpr unsigned kBlocks = 1056;

template <int W, typename T>
__global__ void __launch_bounds__(kThreads) largest(uint32_t* amax, const T* x, int64_t n) {
  float most = 0;
  for (int64_t i = (int64_t{blockIdx.x} * kThreads + threadIdx.x) * W; i < n;
       i += int64_t{kBlocks} * kThreads * W) {
    const Floats<W> v = load<W>(x + i);
#pragma unroll
    for (int k = 0; k < W; ++k) {
      const float magnitude = std::fabs(v.at[k]);
      most = magnitude > most ? magnitude : most;
    }
  }
  raise(amax, most);
}

// Reads x once and writes a code for every element.
template <int W, typename Format, typename T>
__global__ void __launch_bounds__(kThreads)
    encode(Format* to, const T* x, int64_t n, const float* scale, Meter meter) {
  Tally tally;
  const float factor = *scale;
  for (int64_t i = (int64_t{blockIdx.x} * kThreads + threadIdx.x) * W; i < n;
       i += int64_t{kBlocks} * kThreads * W) {
    Floats<W> v = load<W>(x + i);
#pragma unroll
    for (int k = 0; k < W; ++k) v.at[k] = tally.template take<Format>(v.at[k], factor);
    store(to + i, v);
  }
  report(meter, tally);
}

constexpr int kTile = 64;      // rows and columns of a block
constexpr int kTileWidth = 8;  // codes that a thread writes at once
static_assert(kTile * kTile / kTileWidth == 2 * kThreads);

// A block owns a tile of 64 x 64. Codes go straight to `to`, and through shared memory to the transposed
// copy, 8 bytes a thread either way. Rows of the tile in shared memory are 4 bytes longer than they need to
// be, so that a column's elements lie in different banks. REQUIRES: N and C multiples of 8.
template <typename Format, typename T>
__global__ void __launch_bounds__(kThreads) encode_both(Format* to, Format* transposed, const T* x, int64_t N,
                                                        int64_t C, const float* scale, Meter meter) {
  __shared__ uint8_t tile[kTile][kTile + 4];
  const int64_t first_column = int64_t{blockIdx.x} * kTile, first_row = int64_t{blockIdx.y} * kTile;
  const float factor = *scale;
  Tally tally;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int place = half * kThreads + static_cast<int>(threadIdx.x);
    const int row = place / (kTile / kTileWidth), column = place % (kTile / kTileWidth) * kTileWidth;
    if (first_row + row >= N || first_column + column >= C) continue;
    const int64_t at = (first_row + row) * C + first_column + column;
    Floats<kTileWidth> v = load<kTileWidth>(x + at);
    Raw<uint8_t, kTileWidth> codes;
#pragma unroll
    for (int k = 0; k < kTileWidth; k += 2) {
      const float low = tally.template take<Format>(v.at[k], factor);
      const uint16_t pair = pack_fp8<Format>(low, tally.template take<Format>(v.at[k + 1], factor));
      codes.at[k] = static_cast<uint8_t>(pair);
      codes.at[k + 1] = static_cast<uint8_t>(pair >> 8);
    }
    *reinterpret_cast<Raw<uint8_t, kTileWidth>*>(to + at) = codes;
#pragma unroll
    for (int k = 0; k < kTileWidth; ++k) tile[row][column + k] = codes.at[k];
  }
  report(meter, tally);
  __syncthreads();
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int place = half * kThreads + static_cast<int>(threadIdx.x);
    const int column = place / (kTile / kTileWidth), row = place % (kTile / kTileWidth) * kTileWidth;
    if (first_row + row >= N || first_column + column >= C) continue;
    Raw<uint8_t, kTileWidth> codes;
#pragma unroll
    for (int k = 0; k < kTileWidth; ++k) codes.at[k] = tile[row + k][column];
    *reinterpret_cast<Raw<uint8_t, kTileWidth>*>(transposed + (first_column + column) * N + first_row + row) =
        codes;
  }
}

// fp8_scale of ops/cast_fp8.h. A power of two below a double has that double's exponent.
__global__ void make_scale(float* scale, float* inverse, const float* amax, double most,
                           bool is_power_of_two) {
  const double exact = most / std::fmax(static_cast<double>(*amax), 1e-12);
  const uint64_t floor = std::bit_cast<uint64_t>(exact) & 0x7ff0000000000000u;
  *scale = static_cast<float>(is_power_of_two ? std::bit_cast<double>(floor) : exact);
  *inverse = 1.0f / *scale;
}

Meter meter_of(const Fp8Meter& meter, const char* op) {
  check_tensor(meter.amax, DType::f32, {1}, op);
  check_tensor(meter.counts, DType::u32, {2}, op);
  return {static_cast<uint32_t*>(meter.amax.data), meter.counts.as<uint32_t>()};
}

template <typename F>
void with_format(DType format, const char* op, F&& f) {
  if (format == DType::f8e4m3) return f(f8e4m3());
  if (format == DType::f8e5m2) return f(f8e5m2());
  fail(ErrorKind::kInternal, "{}: the format must be f8e4m3 or f8e5m2, got {}", op, name(format));
}

}  // namespace

void raise_amax(const Tensor& amax, const Tensor& x, Stream& stream) {
  const char* op = "raise_amax";
  check_tensor(amax, DType::f32, {1}, op);
  const int64_t n = x.elements();
  with_dtype(x.dtype, op, [&](auto value) {
    using T = decltype(value);
    with_width<T>(allows_wide(n, x), [&](auto width) {
      constexpr int W = decltype(width)::value;
      const unsigned blocks = std::min(kBlocks, blocks_for(n, int64_t{kThreads} * W));
      launch({stream, op, dim3(blocks), dim3(kThreads)}, largest<W, T>, static_cast<uint32_t*>(amax.data),
             x.as<T>(), n);
    });
  });
}

void set_fp8_scale(const Tensor& scale, const Tensor& inverse, const Tensor& amax, DType format,
                   Fp8ScaleFloor floor, Stream& stream) {
  const char* op = "set_fp8_scale";
  for (const Tensor* t : {&scale, &inverse, &amax}) check_tensor(*t, DType::f32, {1}, op);
  launch({stream, op, dim3(1), dim3(1)}, make_scale, scale.as<float>(), inverse.as<float>(), amax.as<float>(),
         static_cast<double>(float8_max(format)), floor == Fp8ScaleFloor::kPowerOfTwo);
}

void cast_to_fp8(const Tensor& to, const Tensor& x, const Tensor& scale, const Fp8Meter& meter,
                 Stream& stream) {
  const char* op = "cast_to_fp8";
  INGOT_CHECK(to.shape == x.shape && to.is_contiguous() && x.is_contiguous(),
              "{}: shapes must be equal and contiguous, got {} and {}", op, to.shape.to_string(),
              x.shape.to_string());
  check_tensor(scale, DType::f32, {1}, op);
  const Meter places = meter_of(meter, op);
  const int64_t n = x.elements();
  with_format(to.dtype, op, [&](auto format) {
    using Format = decltype(format);
    with_dtype(x.dtype, op, [&](auto value) {
      using T = decltype(value);
      with_width<T>(allows_wide(n, to, x), [&](auto width) {
        constexpr int W = decltype(width)::value;
        const unsigned blocks = std::min(kBlocks, blocks_for(n, int64_t{kThreads} * W));
        launch({stream, op, dim3(blocks), dim3(kThreads)}, encode<W, Format, T>, to.as<Format>(), x.as<T>(),
               n, scale.as<float>(), places);
      });
    });
  });
}

void cast_to_fp8_both_ways(const Tensor& to, const Tensor& transposed, const Tensor& x, const Tensor& scale,
                           const Fp8Meter& meter, Stream& stream) {
  const char* op = "cast_to_fp8_both_ways";
  INGOT_CHECK(
      x.rank() == 2 && x.is_contiguous() && x.dim(0) % 8 == 0 && x.dim(1) % 8 == 0 && is_aligned(x.data),
      "{}: x must be (N, C), contiguous, aligned, of multiples of 8, got {}", op, x.shape.to_string());
  const int64_t N = x.dim(0), C = x.dim(1);
  check_tensor(to, to.dtype, {N, C}, op);
  check_tensor(transposed, to.dtype, {C, N}, op);
  check_tensor(scale, DType::f32, {1}, op);
  const Meter places = meter_of(meter, op);
  with_format(to.dtype, op, [&](auto format) {
    using Format = decltype(format);
    with_dtype(x.dtype, op, [&](auto value) {
      using T = decltype(value);
      launch({stream, op, dim3(blocks_for(C, kTile), blocks_for(N, kTile)), dim3(kThreads)},
             encode_both<Format, T>, to.as<Format>(), transposed.as<Format>(), x.as<T>(), N, C,
             scale.as<float>(), places);
    });
  });
}

}  // namespace ingot::cuda
