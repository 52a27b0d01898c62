#include "ingot/ops/cuda_fp8.h"

#include <limits>

#include "ingot/core/cuda/cuda_elementwise.h"
#include "ingot/ops/fp8/cuda_fp8_tile.h"

namespace ingot::cuda {
namespace {

using fp8::Meter;
using fp8::Tally;

// Limits the grid: the blocks loop over packs of W elements, so few blocks update the meter.
constexpr unsigned kBlocks = 1056;
constexpr float kLargestFloat = std::numeric_limits<float>::max();

// Rows of C elements are `stride` apart; with C = 0 all elements are adjacent.
template <int W, typename T>
__global__ void __launch_bounds__(kThreads)
    largest(uint32_t* amax, const T* x, int64_t n, uint32_t C, int64_t stride) {
  float most = 0;
  for (int64_t i = (int64_t{blockIdx.x} * kThreads + threadIdx.x) * W; i < n;
       i += int64_t{kBlocks} * kThreads * W) {
    int64_t place = i;
    if (C > 0) {
      const RowColumn at(i, C);
      place = at.row * stride + at.column;
    }
    most = larger(most, load<W>(x + place));
  }
  raise<kThreads>(amax, most);
}

// Reads x once and writes one code per element.
template <int W, typename Format, typename T>
__global__ void __launch_bounds__(kThreads)
    encode(Format* to, const T* x, int64_t n, const float* scale, Meter meter) {
  Tally tally;
  const float factor = *scale;
  for (int64_t i = (int64_t{blockIdx.x} * kThreads + threadIdx.x) * W; i < n;
       i += int64_t{kBlocks} * kThreads * W) {
    Floats<W> v = load<W>(x + i);
    tally.template take<Format>(v, factor);
    store(to + i, v);
  }
  fp8::report<kThreads>(meter, tally);
}

// A block owns a tile (fp8::encode_tile). The kernel reads x once and writes one code per element to
// `transposed` and, with kBoth, to `to`.
template <bool kBoth, typename Format, typename T>
__global__ void __launch_bounds__(kThreads) encode_both(Format* to, Format* transposed, const T* x, int64_t N,
                                                        int64_t C, const float* scale, Meter meter) {
  constexpr int W = fp8::kTileWidth;
  const float factor = *scale;
  fp8::encode_tile(
      kBoth ? to : nullptr, transposed, N, C, meter,
      [=](int64_t row, int64_t column) { return load<W>(x + row * C + column); },
      [=](Floats<W>& v, int64_t, Tally& tally) { tally.template take<Format>(v, factor); });
}

__global__ void put_scale(float* scale, float* inverse, float value) {
  *scale = value;
  *inverse = 1.0f / value;
}

__global__ void make_scale(float* scale, float* inverse, float* amax, double most, bool is_power_of_two) {
  *scale = fp8::scale_of(*amax, most, is_power_of_two);
  *inverse = 1.0f / *scale;
  *amax = 0;
}

// The operands of next_scales. A row of scales, inverses and fresh has kSlot numbers.
struct NextScales {
  float *scales, *inverses, *amaxes;
  uint32_t* next;
  const float *limits, *fresh, *factor;  // fresh and factor may be null
  int steps;
};
constexpr int kSlot = 4;

// A warp owns a tensor.
__global__ void __launch_bounds__(kWarp) next_scales(NextScales a) {
  if (a.factor && *a.factor != *a.factor) return;
  const int tensor = static_cast<int>(blockIdx.x), lane = static_cast<int>(threadIdx.x);
  const float fresh = a.fresh ? a.fresh[tensor * kSlot] : 0;
  const bool is_recorded = a.fresh && fresh <= kLargestFloat;
  const int place = static_cast<int>(a.next[tensor]);
  float* row = a.amaxes + int64_t{tensor} * a.steps;
  float most = 0;
  for (int column = lane; column < a.steps; column += kWarp) {
    const bool is_replaced = is_recorded && column == place;
    if (is_replaced) row[column] = fresh;
    most = std::fmax(most, is_replaced ? fresh : row[column]);
  }
  most = warp_max(most);
  __syncwarp();  // all lanes have read `place`
  if (lane != 0) return;
  if (is_recorded) a.next[tensor] = static_cast<uint32_t>((place + 1) % a.steps);
  if (most == 0) return;
  const float scale = a.limits[tensor] / most;
  a.scales[tensor * kSlot] = scale;
  a.inverses[tensor * kSlot] = 1.0f / scale;
}

}  // namespace

void raise_amax(const Tensor& x, Stream& stream) {
  const char* op = "raise_amax";
  INGOT_CHECK(x.amax, "{}: x {} has no amax", op, x.shape.to_string());
  INGOT_CHECK(x.is_contiguous() || (x.rank() == 2 && x.strides[1] == 1), "{}: x {} is strided", op,
              x.shape.to_string());
  const int64_t n = x.elements();
  const bool has_rows = !x.is_contiguous();
  const int64_t C = has_rows ? x.dim(1) : n, stride = has_rows ? x.strides[0] : n;
  const uint32_t length = has_rows ? row_length(x.dim(0), C, op) : 0;
  with_dtype(x.dtype, op, [&]<typename T>() {
    with_width<T>(allows_wide(C, x) && stride % 8 == 0, [&](auto width) {
      constexpr int W = decltype(width)::value;
      const unsigned blocks = std::min(kBlocks, blocks_for(n, int64_t{kThreads} * W));
      launch({stream, op, dim3(blocks), dim3(kThreads)}, largest<W, T>, amax_bits(x), x.as<T>(), n, length,
             stride);
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

void put_fp8_scale(const Tensor& scale, const Tensor& inverse, float value, Stream& stream) {
  const char* op = "put_fp8_scale";
  for (const Tensor* t : {&scale, &inverse}) check_tensor(*t, DType::f32, {1}, op);
  launch({stream, op, dim3(1), dim3(1)}, put_scale, scale.as<float>(), inverse.as<float>(), value);
}

void next_fp8_scales(const Tensor& scales, const Tensor& inverses, const Fp8Amaxes& history,
                     const Tensor& amaxes, const Tensor& factor, Stream& stream) {
  const char* op = "next_fp8_scales";
  const int64_t tensors = history.amaxes.dim(0);
  for (const Tensor* t : {&scales, &inverses}) check_tensor(*t, DType::f32, {tensors, kSlot}, op);
  if (amaxes) check_tensor(amaxes, DType::f32, {tensors, kSlot}, op);
  check_tensor(history.next, DType::u32, {tensors}, op);
  check_tensor(history.limits, DType::f32, {tensors}, op);
  launch({stream, op, dim3(static_cast<unsigned>(tensors)), dim3(kWarp)}, next_scales,
         NextScales{.scales = scales.as<float>(),
                    .inverses = inverses.as<float>(),
                    .amaxes = history.amaxes.as<float>(),
                    .next = history.next.as<uint32_t>(),
                    .limits = history.limits.as<float>(),
                    .fresh = optional<float>(amaxes),
                    .factor = optional<float>(factor),
                    .steps = static_cast<int>(history.amaxes.dim(1))});
}

void cast_to_fp8(const Tensor& to, const Tensor& x, const Tensor& scale, const Fp8Meter& meter,
                 Stream& stream) {
  const char* op = "cast_to_fp8";
  INGOT_CHECK(to.shape == x.shape && to.is_contiguous() && x.is_contiguous(),
              "{}: shapes must be equal and contiguous, got {} and {}", op, to.shape.to_string(),
              x.shape.to_string());
  check_tensor(scale, DType::f32, {1}, op);
  const Meter places = fp8::meter_of(meter, op);
  const int64_t n = x.elements();
  with_float8(to.dtype, op, [&]<typename Format>() {
    with_dtype(x.dtype, op, [&]<typename T>() {
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
  if (to) check_tensor(to, transposed.dtype, {N, C}, op);
  check_tensor(transposed, transposed.dtype, {C, N}, op);
  check_tensor(scale, DType::f32, {1}, op);
  const Meter places = fp8::meter_of(meter, op);
  with_float8(transposed.dtype, op, [&]<typename Format>() {
    with_dtype(x.dtype, op, [&]<typename T>() {
      launch({stream, op, fp8::tiles_of(N, C), dim3(kThreads)},
             to ? encode_both<true, Format, T> : encode_both<false, Format, T>, optional<Format>(to),
             transposed.as<Format>(), x.as<T>(), N, C, scale.as<float>(), places);
    });
  });
}

}  // namespace ingot::cuda
