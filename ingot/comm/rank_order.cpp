#include "ingot/comm/rank_order.h"

#include <cmath>
#include <type_traits>

#include "ingot/core/float16.h"

namespace ingot {
namespace {

template <typename Sum>
bool is_nan(Sum x) {
  if constexpr (std::is_floating_point_v<Sum>) return std::isnan(x);
  return false;
}

template <typename Sum>
Sum combine(Sum a, Sum b, ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
      return a + b;
    // NaN is the result if either operand is NaN.
    case ReduceOp::kMax:
      return is_nan(b) || a < b ? b : a;
    case ReduceOp::kMin:
      return is_nan(b) || b < a ? b : a;
  }
  return a;
}

// T is the stored type; sums are computed in Sum.
template <typename Out, typename T>
void reduce(Out* out, const T* inputs, int ranks, int64_t n, ReduceOp op) {
  using Sum = std::conditional_t<std::is_same_v<T, bf16> || std::is_same_v<T, f16>, float, T>;
  for (int64_t i = 0; i < n; ++i) {
    Sum total = static_cast<Sum>(inputs[i]);
    for (int r = 1; r < ranks; ++r) total = combine(total, static_cast<Sum>(inputs[r * n + i]), op);
    out[i] = Out(total);
  }
}

}  // namespace

void reduce_in_rank_order(void* out, DType out_dtype, const void* inputs, DType in, int ranks, int64_t n,
                          ReduceOp op) {
  switch (in) {
    case DType::f32:
      return reduce(static_cast<float*>(out), static_cast<const float*>(inputs), ranks, n, op);
    case DType::i32:
      return reduce(static_cast<int32_t*>(out), static_cast<const int32_t*>(inputs), ranks, n, op);
    case DType::i64:
      return reduce(static_cast<int64_t*>(out), static_cast<const int64_t*>(inputs), ranks, n, op);
    case DType::f64:
      return reduce(static_cast<double*>(out), static_cast<const double*>(inputs), ranks, n, op);
    case DType::f16:
      if (out_dtype == DType::f32)
        return reduce(static_cast<float*>(out), static_cast<const f16*>(inputs), ranks, n, op);
      return reduce(static_cast<f16*>(out), static_cast<const f16*>(inputs), ranks, n, op);
    case DType::bf16:
      if (out_dtype == DType::f32)
        return reduce(static_cast<float*>(out), static_cast<const bf16*>(inputs), ranks, n, op);
      return reduce(static_cast<bf16*>(out), static_cast<const bf16*>(inputs), ranks, n, op);
    default:
      fail(ErrorKind::kInternal, "reduce_in_rank_order: {} cannot be reduced", name(in));
  }
}

}  // namespace ingot
