// The heads of a (B,T,H,D) view as a warp holds them, in the two halves that RoPE rotates into each
// other. For .cu files only.
#pragma once

#include "ingot/core/cuda/cuda_kernel.h"
#include "ingot/ops/attention/head_view.h"

namespace ingot::cuda {

// The elements of one head that a lane holds: P packs of W elements each of [0, R/2), of [R/2, R) and of [R,
// D).
template <int W, int P>
struct HeadTile {
  Floats<W> a[P], b[P], rest[P];

  static __device__ __forceinline__ int column(int p, int lane) { return (p * kWarp + lane) * W; }

  // Elements beyond a range's end read as 0.
  template <typename T>
  __device__ __forceinline__ void load(const T* head, int lane, int half, int D) {
#pragma unroll
    for (int p = 0; p < P; ++p) {
      const int i = column(p, lane);
      a[p] = i < half ? cuda::load<W>(head + i) : Floats<W>{};
      b[p] = i < half ? cuda::load<W>(head + half + i) : Floats<W>{};
      rest[p] = i < D - 2 * half ? cuda::load<W>(head + 2 * half + i) : Floats<W>{};
    }
  }
  template <typename T>
  __device__ __forceinline__ void store(T* head, int lane, int half, int D) const {
#pragma unroll
    for (int p = 0; p < P; ++p) {
      const int i = column(p, lane);
      if (i < half) cuda::store<W>(head + i, a[p]);
      if (i < half) cuda::store<W>(head + half + i, b[p]);
      if (i < D - 2 * half) cuda::store<W>(head + 2 * half + i, rest[p]);
    }
  }
  // Calls f(element of this tile, same element of `other`) for all elements.
  template <typename F>
  __device__ __forceinline__ void for_each(const HeadTile& other, F&& f) {
#pragma unroll
    for (int p = 0; p < P; ++p)
#pragma unroll
      for (int i = 0; i < W; ++i) {
        f(a[p].at[i], other.a[p].at[i]);
        f(b[p].at[i], other.b[p].at[i]);
        f(rest[p].at[i], other.rest[p].at[i]);
      }
  }
};

// cos and sin of a row's position, used for all of its heads.
template <int W, int P>
struct Angles {
  Floats<W> cos[P], sin[P];

  // row: cos (half), then sin (half). direction -1 rotates backwards.
  __device__ __forceinline__ Angles(const float* row, int lane, int half, float direction) {
#pragma unroll
    for (int p = 0; p < P; ++p) {
      const int column = HeadTile<W, P>::column(p, lane);
#pragma unroll
      for (int i = 0; i < W; ++i) {
        cos[p].at[i] = column < half ? row[column + i] : 1.0f;
        sin[p].at[i] = column < half ? row[half + column + i] * direction : 0.0f;
      }
    }
  }
  __device__ __forceinline__ void turn(HeadTile<W, P>& head) const {
#pragma unroll
    for (int p = 0; p < P; ++p)
#pragma unroll
      for (int i = 0; i < W; ++i) {
        const float a = head.a[p].at[i], b = head.b[p].at[i];
        head.a[p].at[i] = a * cos[p].at[i] - b * sin[p].at[i];
        head.b[p].at[i] = b * cos[p].at[i] + a * sin[p].at[i];
      }
  }
};

// The rows (b, t) of a view; each warp of a block of kThreads processes one.
struct HeadRows {
  int64_t T, rows;
  int H, half, D;
  const float* table;  // row of the first position; null without rotation
};

inline HeadRows head_rows(const Tensor& x, const Tensor& table, int64_t position_offset) {
  const int64_t R = table ? table.dim(1) : 0;
  return {x.dim(1),
          x.dim(0) * x.dim(1),
          static_cast<int>(x.dim(2)),
          static_cast<int>(R / 2),
          static_cast<int>(x.dim(3)),
          table ? table.as<float>() + position_offset * R : nullptr};
}

template <int W_, int P_>
struct HeadShape {
  static constexpr int W = W_, P = P_;
};

// Calls f with the HeadShape for such heads.
template <typename F, typename... Tensors>
void with_head_shape(const HeadRows& rows, const char* op, F&& f, const Tensors&... views) {
  const int longest = std::max(rows.half, rows.D - 2 * rows.half);
  const auto is_even = [](const Tensor& t) {
    return reinterpret_cast<uintptr_t>(t.data) % (2 * size_bytes(t.dtype)) == 0 && t.strides[0] % 2 == 0 &&
           t.strides[1] % 2 == 0 && t.strides[2] % 2 == 0;
  };
  const bool is_paired = rows.half % 2 == 0 && rows.D % 2 == 0 && (is_even(views) && ...);
  if (is_paired && longest <= 2 * kWarp) return f(HeadShape<2, 1>{});
  if (is_paired && longest <= 8 * kWarp) return f(HeadShape<2, 4>{});
  if (longest <= 8 * kWarp) return f(HeadShape<1, 8>{});
  fail(ErrorKind::kInternal, "{}: heads of {} elements are too long for a CUDA device, at most {}", op,
       rows.D, 8 * kWarp);
}

// Heads of which every lane holds 16 bytes of either half: a head takes `packs` lanes, so a warp holds 32 /
// packs of a row at once, and it loads kAhead times as many before it stores the first.
inline constexpr int kHeadsAhead = 4;

template <typename T, int kAhead = kHeadsAhead>
struct WideHeads {
  static constexpr int W = kWide<T>;
  Raw<T, W> a[kAhead], b[kAhead];

  // Loads the heads first, first + step, ... below H. The others are undefined.
  __device__ __forceinline__ void load(const HeadView<T>& x, int64_t row, const HeadRows& rows, int first,
                                       int step, int pack) {
#pragma unroll
    for (int k = 0; k < kAhead; ++k)
      if (first + k * step < rows.H) {
        const T* head = x.at(row / rows.T, row % rows.T, first + k * step) + pack * W;
        a[k] = load_raw<W>(head);
        b[k] = load_raw<W>(head + rows.half);
      }
  }
};

// cos and sin of a row's position for the elements of a lane.
template <int W>
struct WideAngles {
  Floats<W> cos, sin;

  __device__ __forceinline__ WideAngles(const float* row, int pack, int half, float direction)
      : cos(cuda::load<W>(row + pack * W)), sin(cuda::load<W>(row + half + pack * W)) {
#pragma unroll
    for (int i = 0; i < W; ++i) sin.at[i] *= direction;
  }
  __device__ __forceinline__ void turn(Floats<W>& a, Floats<W>& b) const {
#pragma unroll
    for (int i = 0; i < W; ++i) {
      const float first = a.at[i], second = b.at[i];
      a.at[i] = first * cos.at[i] - second * sin.at[i];
      b.at[i] = second * cos.at[i] + first * sin.at[i];
    }
  }
};

// Returns how many lanes hold a head; 0 if the heads do not allow it.
template <typename T, typename... Tensors>
int wide_packs(const HeadRows& rows, const Tensors&... views) {
  constexpr int W = kWide<T>;
  const auto is_wide = [](const Tensor& t) {
    return is_aligned(t.data) && t.strides[0] % W == 0 && t.strides[1] % W == 0 && t.strides[2] % W == 0;
  };
  const int packs = rows.half / W;
  const bool fits = packs > 0 && rows.half % W == 0 && kWarp % packs == 0 && is_aligned(rows.table);
  return fits && (is_wide(views) && ...) ? packs : 0;
}

inline unsigned head_blocks(const HeadRows& rows) { return blocks_for(rows.rows, kThreads / kWarp); }

}  // namespace ingot::cuda
