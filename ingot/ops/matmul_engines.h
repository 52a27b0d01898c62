// The two engines behind ops/matmul. Internal to ops.
#pragma once

#include <cstdint>

#include "ingot/core/stream.h"
#include "ingot/ops/matmul.h"

namespace ingot {

// A checked product: c (M,N) with leading dims in elements.
struct MatmulProblem {
  MatmulForm form;
  bool accumulate;
  DType in, out;
  int64_t M, N, K;
  const void *a, *b;
  void* c;
  int64_t lda, ldb, ldc;
  float alpha = 1;  // factor of the product
};

namespace portable {
// Packs panels of a and b to f32 and multiplies them in registers; every form and dtype.
void matmul(const MatmulProblem& p, Stream& stream);
}  // namespace portable

namespace onednn {
// False where oneDNN has no fast kernel for the dtype on this machine.
bool is_fast(DType in);
void matmul(const MatmulProblem& p, Stream& stream);
const char* version();
}  // namespace onednn

}  // namespace ingot
