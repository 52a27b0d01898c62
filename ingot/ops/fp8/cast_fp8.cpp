#include "ingot/ops/cast_fp8.h"

#include <algorithm>
#include <cmath>
#include <mutex>

#include "ingot/core/cuda/cuda_device.h"
#include "ingot/core/dispatch.h"
#include "ingot/core/float8.h"
#include "ingot/core/parallel.h"
#include "ingot/core/work.h"

namespace ingot {

namespace cuda {  // cuda_fp8.cu
decltype(ingot::raise_amax) raise_amax;
}  // namespace cuda

namespace {

// Elements per block: their counts fit in 32 bits, and they stay in the L1 cache.
constexpr int64_t kBlock = 4096;

// Casts one block: to[i] = fp8(x[i] * scale) * unscale, where unscale is a power of two.
template <typename Format, typename To, typename From>
Fp8Stats cast_block(To* to, const From* x, int64_t n, float scale, float unscale) {
  int32_t saturated = 0, underflowed = 0;
  float amax = 0;
#pragma omp simd reduction(+ : saturated, underflowed) reduction(max : amax)
  for (int64_t i = 0; i < n; ++i) {
    const float value = static_cast<float>(x[i]), scaled = value * scale;
    const float magnitude = std::abs(value);
    amax = magnitude > amax ? magnitude : amax;
    saturated += Format::saturates(scaled) ? 1 : 0;
    underflowed += Format::underflows(scaled) ? 1 : 0;
    const Format code(scaled);
    if constexpr (std::is_same_v<To, Format>)
      to[i] = code;
    else
      to[i] = To(static_cast<float>(code) * unscale);
  }
  return {.elements = n, .saturated = saturated, .underflowed = underflowed, .amax = amax};
}

template <typename Format, typename To, typename From>
Fp8Stats cast_range(To* to, const From* x, int64_t n, float scale, float unscale) {
  Fp8Stats stats;
  for (int64_t i = 0; i < n; i += kBlock)
    stats.add(cast_block<Format>(to + i, x + i, std::min(kBlock, n - i), scale, unscale));
  return stats;
}

// Runs f(begin, end) -> Fp8Stats over [0, n) in parallel and adds the results to stats.
template <typename F>
void parallel_stats(int64_t n, int64_t grain, Fp8Stats& stats, F&& f) {
  std::mutex mutex;
  parallel_for(n, grain, [&](int64_t begin, int64_t end) {
    const Fp8Stats part = f(begin, end);
    const std::lock_guard lock(mutex);
    stats.add(part);
  });
}

template <typename To, typename Format>
void decode_block(To* to, const Format* from, int64_t n) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) to[i] = To(static_cast<float>(from[i]));
}

template <typename From>
float amax_of(const From* x, int64_t n) {
  float amax = 0;
#pragma omp simd reduction(max : amax)
  for (int64_t i = 0; i < n; ++i) {
    const float magnitude = std::abs(static_cast<float>(x[i]));
    amax = magnitude > amax ? magnitude : amax;
  }
  return amax;
}

void check_like(const Tensor& to, const Tensor& x, const char* op) {
  INGOT_CHECK(to.shape == x.shape && to.is_contiguous() && x.is_contiguous(),
              "{}: shapes must be equal and contiguous, got {} and {}", op, to.shape.to_string(),
              x.shape.to_string());
}

void check_matrix(const Tensor& to, const Tensor& x, const char* op) {
  check_like(to, x, op);
  INGOT_CHECK(x.rank() == 2, "{}: x must be (N, C), got {}", op, x.shape.to_string());
}

}  // namespace

void Fp8Stats::add(const Fp8Stats& other) {
  elements += other.elements;
  saturated += other.saturated;
  underflowed += other.underflowed;
  amax = std::max(amax, other.amax);
}

float fp8_scale(DType format, float amax, Fp8ScaleFloor floor) {
  const double exact = static_cast<double>(float8_max(format)) / std::max(static_cast<double>(amax), 1e-12);
  if (floor == Fp8ScaleFloor::kExact || exact == 0) return static_cast<float>(exact);
  int exponent = 0;
  std::frexp(exact, &exponent);
  return std::ldexp(1.0f, exponent - 1);
}

float absolute_max(const Tensor& x, Stream& stream) {
  const OpSpan span(stream, "fp8 cast", traffic({x}));
  if (span.plans()) return 0;
  INGOT_CHECK(x.is_contiguous(), "absolute_max: x {} is strided", x.shape.to_string());
  float amax = 0;
  std::mutex mutex;
  with_dtype(x.dtype, __func__, [&]<typename T>() {
    parallel_for(x.elements(), kGrain, [&](int64_t begin, int64_t end) {
      const float part = amax_of(x.as<T>() + begin, end - begin);
      const std::lock_guard lock(mutex);
      amax = std::max(amax, part);
    });
  });
  return amax;
}

void raise_amax(const Tensor& x, Stream& stream) {
  const OpSpan span(stream, "fp8 cast", traffic({x}));
  if (span.plans()) return;
  INGOT_CHECK(x.device == Device::kCuda, "raise_amax: x is not on a CUDA device");
  if constexpr (kHasCuda) cuda::raise_amax(x, stream);
}

void cast_to_fp8(const Tensor& to, const Tensor& x, float scale, Fp8Stats& stats, Stream& stream) {
  const OpSpan span(stream, "fp8 cast", traffic({to, x}));
  if (span.plans()) return;
  check_like(to, x, "cast_to_fp8");
  with_float8(to.dtype, "cast_to_fp8", [&]<typename Format>() {
    with_dtype(x.dtype, "cast_to_fp8", [&]<typename T>() {
      parallel_stats(x.elements(), kGrain, stats, [&](int64_t begin, int64_t end) {
        return cast_range<Format>(to.as<Format>() + begin, x.as<T>() + begin, end - begin, scale, 1.0f);
      });
    });
  });
}

void cast_from_fp8(const Tensor& to, const Tensor& from, Stream& stream) {
  const OpSpan span(stream, "fp8 cast", traffic({to, from}));
  if (span.plans()) return;
  check_like(to, from, "cast_from_fp8");
  with_float8(from.dtype, "cast_from_fp8", [&]<typename Format>() {
    with_dtype(to.dtype, "cast_from_fp8", [&]<typename T>() {
      parallel_for(to.elements(), kGrain, [&](int64_t begin, int64_t end) {
        decode_block(to.as<T>() + begin, from.as<Format>() + begin, end - begin);
      });
    });
  });
}

void round_to_fp8(const Tensor& to, const Tensor& x, DType format, float scale, Fp8Stats& stats,
                  Stream& stream) {
  const OpSpan span(stream, "fp8 cast", traffic({to, x}));
  if (span.plans()) return;
  check_like(to, x, "round_to_fp8");
  with_float8(format, "round_to_fp8", [&]<typename Format>() {
    with_dtype(x.dtype, "round_to_fp8", [&]<typename T>() {
      parallel_stats(x.elements(), kGrain, stats, [&](int64_t begin, int64_t end) {
        return cast_range<Format>(to.as<bf16>() + begin, x.as<T>() + begin, end - begin, scale, 1.0f);
      });
    });
  });
}

void round_rows_to_fp8(const Tensor& to, const Tensor& x, DType format, Fp8Stats& stats, Stream& stream) {
  const OpSpan span(stream, "fp8 cast", traffic({to, x}));
  if (span.plans()) return;
  check_matrix(to, x, "round_rows_to_fp8");
  const int64_t C = x.dim(1);
  with_float8(format, "round_rows_to_fp8", [&]<typename Format>() {
    with_dtype(x.dtype, "round_rows_to_fp8", [&]<typename T>() {
      const int64_t grain_rows = std::max<int64_t>(1, kGrain / std::max<int64_t>(1, C));
      parallel_stats(x.dim(0), grain_rows, stats, [&](int64_t begin, int64_t end) {
        Fp8Stats part;
        for (int64_t n = begin; n < end; ++n) {
          const T* row = x.as<T>() + n * C;
          const float scale = fp8_scale(format, amax_of(row, C), Fp8ScaleFloor::kPowerOfTwo);
          part.add(cast_range<Format>(to.as<bf16>() + n * C, row, C, scale, 1.0f / scale));
        }
        return part;
      });
    });
  });
}

namespace {

// Casts columns [begin, end) of all rows. scale (C) holds first their amax, then their scales.
template <typename Format, typename T>
Fp8Stats round_column_range(bf16* to, const T* x, float* scale, int64_t N, int64_t C, Range columns) {
  const int64_t begin = columns.begin, end = columns.end;
  std::fill(scale + begin, scale + end, 0.0f);
  for (int64_t n = 0; n < N; ++n) {
    const T* row = x + n * C;
#pragma omp simd
    for (int64_t c = begin; c < end; ++c) {
      const float magnitude = std::abs(static_cast<float>(row[c]));
      scale[c] = magnitude > scale[c] ? magnitude : scale[c];
    }
  }
  Fp8Stats stats{.elements = N * (end - begin), .amax = amax_of(scale + begin, end - begin)};
  for (int64_t c = begin; c < end; ++c)
    scale[c] = fp8_scale(dtype_of<Format>, scale[c], Fp8ScaleFloor::kPowerOfTwo);
  for (int64_t n = 0; n < N; ++n) {
    int32_t saturated = 0, underflowed = 0;
#pragma omp simd reduction(+ : saturated, underflowed)
    for (int64_t c = begin; c < end; ++c) {
      const float scaled = static_cast<float>(x[n * C + c]) * scale[c];
      saturated += Format::saturates(scaled) ? 1 : 0;
      underflowed += Format::underflows(scaled) ? 1 : 0;
      to[n * C + c] = bf16(static_cast<float>(Format(scaled)) / scale[c]);
    }
    stats.saturated += saturated;
    stats.underflowed += underflowed;
  }
  return stats;
}

}  // namespace

void round_columns_to_fp8(const Tensor& to, const Tensor& x, DType format, const Tensor& amax,
                          Fp8Stats& stats, Stream& stream) {
  const OpSpan span(stream, "fp8 cast", traffic({to, x, x}));
  if (span.plans()) return;
  check_matrix(to, x, "round_columns_to_fp8");
  const int64_t N = x.dim(0), C = x.dim(1);
  check_tensor(amax, DType::f32, {C}, "round_columns_to_fp8: amax");
  with_float8(format, "round_columns_to_fp8", [&]<typename Format>() {
    with_dtype(x.dtype, "round_columns_to_fp8", [&]<typename T>() {
      parallel_stats(C, 64, stats, [&](int64_t begin, int64_t end) {
        return round_column_range<Format>(to.as<bf16>(), x.as<T>(), amax.as<float>(), N, C, {begin, end});
      });
    });
  });
}

}  // namespace ingot
