#include "ingot/ops/pack_heads.h"

#include <cstring>

#include "ingot/core/cuda/cuda_device.h"
#include "ingot/core/error.h"
#include "ingot/core/parallel.h"
#include "ingot/core/work.h"

namespace ingot {

namespace cuda {  // pack_heads.cu
void copy_heads(const Tensor& heads, const Tensor& rows, bool is_to_heads, Stream& stream);
}  // namespace cuda

namespace {

constexpr int64_t kGrainTokens = 64;  // minimum number of tokens per thread

void check(const Tensor& heads, const Tensor& rows, const char* op) {
  INGOT_CHECK(heads.rank() == 4 && heads.strides[2] == heads.dim(3) && heads.strides[3] == 1 &&
                  heads.strides[0] == heads.strides[1] * heads.dim(1),
              "{}: heads must be (B, T, H, D) with adjacent heads and evenly spaced tokens, got {}", op,
              heads.shape.to_string());
  check_tensor(rows, heads.dtype, {heads.dim(0) * heads.dim(1) * heads.dim(2), heads.dim(3)}, op);
}

// Calls f(heads of a token, its rows, bytes) for every token.
template <typename F>
void for_each_token(const Tensor& heads, const Tensor& rows, F&& f) {
  const size_t element = size_bytes(heads.dtype);
  const size_t bytes = static_cast<size_t>(heads.dim(2) * heads.dim(3)) * element;
  const size_t stride = static_cast<size_t>(heads.strides[1]) * element;
  parallel_for(heads.dim(0) * heads.dim(1), kGrainTokens, [&](int64_t begin, int64_t end) {
    for (auto n = static_cast<size_t>(begin); n < static_cast<size_t>(end); ++n)
      f(static_cast<std::byte*>(heads.data) + n * stride, static_cast<std::byte*>(rows.data) + n * bytes,
        bytes);
  });
}

}  // namespace

void pack_heads(const Tensor& rows, const Tensor& heads, Stream& stream) {
  const OpSpan span(stream, "heads to rows", traffic({rows, heads}));
  if (span.plans()) return;
  check(heads, rows, "pack_heads");
  if constexpr (kHasCuda) {
    if (heads.device == Device::kCuda) return cuda::copy_heads(heads, rows, false, stream);
  }
  for_each_token(heads, rows, [](const std::byte* token, std::byte* row, size_t bytes) {
    std::memcpy(row, token, bytes);
  });
}

void unpack_heads(const Tensor& heads, const Tensor& rows, Stream& stream) {
  const OpSpan span(stream, "rows to heads", traffic({rows, heads}));
  if (span.plans()) return;
  check(heads, rows, "unpack_heads");
  if constexpr (kHasCuda) {
    if (heads.device == Device::kCuda) return cuda::copy_heads(heads, rows, true, stream);
  }
  for_each_token(heads, rows, [](std::byte* token, const std::byte* row, size_t bytes) {
    std::memcpy(token, row, bytes);
  });
}

}  // namespace ingot
