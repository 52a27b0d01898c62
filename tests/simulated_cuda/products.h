// The arithmetic of the stand-in for cuBLASLt, in Ingot's row-major terms.
#pragma once

#include "ingot/ops/matmul/matmul_engines.h"

namespace simulated_cuda {

struct Product {
  ingot::MatmulProblem problem;  // `in` is a's dtype
  ingot::DType b = ingot::DType::f32;
  bool is_tf32 = false;
  // FP8: factors of the decoded values, one each or one per row; null stands for 1.
  const float *a_scale = nullptr, *b_scale = nullptr;
  bool is_by_row = false;
  ingot::MatmulEpilogue epilogue;
  ingot::DType bias = ingot::DType::f32;  // of the epilogue's bias
};

void compute(const Product& product);

}  // namespace simulated_cuda
