// Turns the runtime dtype of a tensor into a C++ type: INGOT_DISPATCH(x.dtype, T, { kernel<T>(...); })
#pragma once

#include "ingot/core/dtype.h"
#include "ingot/core/error.h"
#include "ingot/core/float16.h"

// T becomes float, bf16 or f16, the compute dtypes; kInternal error for any other dtype.
#define INGOT_DISPATCH(dtype_value, T, ...)                                                                \
  do {                                                                                                     \
    const ::ingot::DType dispatched = (dtype_value);                                                       \
    if (dispatched == ::ingot::DType::f32) {                                                               \
      using T = float;                                                                                     \
      __VA_ARGS__;                                                                                         \
    } else if (dispatched == ::ingot::DType::bf16) {                                                       \
      using T = ::ingot::bf16;                                                                             \
      __VA_ARGS__;                                                                                         \
    } else if (dispatched == ::ingot::DType::f16) {                                                        \
      using T = ::ingot::f16;                                                                              \
      __VA_ARGS__;                                                                                         \
    } else {                                                                                               \
      ::ingot::fail(::ingot::ErrorKind::kInternal, "{}: dtype must be f32, bf16 or f16, got {}", __func__, \
                    ::ingot::name(dispatched));                                                            \
    }                                                                                                      \
  } while (false)
