// The sizes of NCCL's dtypes and the reductions of the simulated library (nccl.cpp).
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "ingot/core/dtype.h"
#include "ingot/core/float16.h"
#include "tests/simulated_cuda/nccl/nccl.h"

namespace simulated_nccl {

inline size_t bytes_of(ncclDataType_t type) {
  switch (type) {
    case ncclInt8:
    case ncclUint8:
      return 1;
    case ncclFloat16:
    case ncclBfloat16:
      return 2;
    case ncclInt32:
    case ncclUint32:
    case ncclFloat32:
      return 4;
    default:
      return 8;
  }
}

template <typename T>
T reduced(T a, T b, ncclRedOp_t op) {
  const auto value = [](T x) {
    if constexpr (std::is_integral_v<T> || std::is_same_v<T, double>)
      return x;
    else
      return static_cast<float>(x);
  };
  if (op == ncclMax) return value(b) > value(a) ? b : a;
  if (op == ncclMin) return value(b) < value(a) ? b : a;
  return T(value(a) + value(b));
}

template <typename T>
void reduce_into(std::byte* sum, const std::byte* more, size_t count, ncclRedOp_t op) {
  for (size_t i = 0; i < count; ++i) {
    T a, b;
    std::memcpy(&a, sum + i * sizeof(T), sizeof(T));
    std::memcpy(&b, more + i * sizeof(T), sizeof(T));
    a = reduced(a, b, op);
    std::memcpy(sum + i * sizeof(T), &a, sizeof(T));
  }
}
inline void reduce(std::byte* sum, const std::byte* more, size_t count, ncclDataType_t type, ncclRedOp_t op) {
  switch (type) {
    case ncclFloat32:
      return reduce_into<float>(sum, more, count, op);
    case ncclFloat64:
      return reduce_into<double>(sum, more, count, op);
    case ncclBfloat16:
      return reduce_into<ingot::bf16>(sum, more, count, op);
    case ncclFloat16:
      return reduce_into<ingot::f16>(sum, more, count, op);
    case ncclInt32:
      return reduce_into<int32_t>(sum, more, count, op);
    default:
      return reduce_into<int64_t>(sum, more, count, op);
  }
}

}  // namespace simulated_nccl
