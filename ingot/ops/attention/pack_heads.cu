#include "ingot/core/cuda/cuda_elementwise.h"
#include "ingot/ops/pack_heads.h"

namespace ingot::cuda {
namespace {

// Copies rows of C elements between two tensors whose rows begin at multiples of their strides.
template <int W, typename T>
struct CopyTokens {
  T* to;
  const T* from;
  int64_t to_stride, from_stride;  // elements
  uint32_t C;

  __device__ void operator()(int64_t i) const {
    const RowColumn at(i, C);
    store(to + at.row * to_stride + at.column, load<W>(from + at.row * from_stride + at.column));
  }
};

}  // namespace

// heads (B,T,H,D) with adjacent heads and evenly spaced tokens, rows (B*T*H, D); pack_heads.cpp checks them.
void copy_heads(const Tensor& heads, const Tensor& rows, bool is_to_heads, Stream& stream) {
  const char* op = is_to_heads ? "unpack_heads" : "pack_heads";
  const int64_t N = heads.dim(0) * heads.dim(1), C = heads.dim(2) * heads.dim(3), stride = heads.strides[1];
  const uint32_t length = row_length(N, C, op);
  with_dtype(heads.dtype, op, [&]<typename T>() {
    with_width<T>(allows_wide(C, heads, rows) && stride % 8 == 0, [&](auto width) {
      constexpr int W = decltype(width)::value;
      const CopyTokens<W, T> f = is_to_heads
                                     ? CopyTokens<W, T>{heads.as<T>(), rows.as<T>(), stride, C, length}
                                     : CopyTokens<W, T>{rows.as<T>(), heads.as<T>(), C, stride, length};
      launch_elementwise<W>(N * C, op, stream, f);
    });
  });
}

}  // namespace ingot::cuda
