// The engines behind ops/matmul. Internal to ops.
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

// What the engines that pack keep with a stream: a buffer for every thread, made once.
struct MatmulPanels : StreamResource {
  std::unique_ptr<StreamResource> portable, amx;
};
inline MatmulPanels& matmul_panels(Stream& stream) {
  if (!stream.matmul_panels) stream.matmul_panels = std::make_unique<MatmulPanels>();
  return static_cast<MatmulPanels&>(*stream.matmul_panels);
}

namespace portable {
// Packs panels of a and b to f32 and multiplies them in registers; every form and dtype.
void matmul(const MatmulProblem& p, Stream& stream);
}  // namespace portable

namespace amx {
// Whether this processor and kernel grant the tile unit. Only where built for it (kHasAmx).
bool is_available();
// in is bf16; every form, out f32 or bf16.
void matmul(const MatmulProblem& p, Stream& stream);
}  // namespace amx

namespace onednn {
// False where oneDNN has no fast kernel for the dtype on this machine.
bool is_fast(DType in);
void matmul(const MatmulProblem& p, Stream& stream);
const char* version();
}  // namespace onednn

namespace cuda {
// By cuBLASLt. REQUIRES: K > 0. Products of f32 are of f32, not of tf32.
void matmul(const MatmulProblem& p, Stream& stream);
}  // namespace cuda

}  // namespace ingot
