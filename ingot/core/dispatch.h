// Functions that turn the runtime dtype of a tensor into a C++ type:
//   with_dtype(x.dtype, "rope", [&]<typename T>() { kernel<T>(...); });
#pragma once

#include "ingot/core/dtype.h"
#include "ingot/core/error.h"
#include "ingot/core/float16.h"
#include "ingot/core/float8.h"

namespace ingot {

// Calls f for float, bf16 or f16, the compute dtypes. kInternal error, which names op, for any other dtype.
template <typename F>
void with_dtype(DType dtype, const char* op, F&& f) {
  if (dtype == DType::f32) return f.template operator()<float>();
  if (dtype == DType::bf16) return f.template operator()<bf16>();
  if (dtype == DType::f16) return f.template operator()<f16>();
  fail(ErrorKind::kInternal, "{}: dtype must be f32, bf16 or f16, got {}", op, name(dtype));
}

// Calls f for f8e4m3 or f8e5m2, the formats of FP8. kInternal error, which names op, for any other dtype.
template <typename F>
void with_float8(DType format, const char* op, F&& f) {
  if (format == DType::f8e4m3) return f.template operator()<f8e4m3>();
  if (format == DType::f8e5m2) return f.template operator()<f8e5m2>();
  fail(ErrorKind::kInternal, "{}: the format must be f8e4m3 or f8e5m2, got {}", op, name(format));
}

}  // namespace ingot
