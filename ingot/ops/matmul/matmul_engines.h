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

// Operands that are checked, with a factor of 1.
MatmulProblem matmul_problem(const Tensor& c, const Tensor& a, const Tensor& b, MatmulForm form,
                             bool accumulate);

// What a product of cuBLASLt does beside it (ops/linear_fused.h).
struct MatmulEpilogue {
  enum class Kind { kNone, kBias, kGelu, kGeluBackward, kBiasGradient };
  Kind kind = Kind::kNone;
  void* bias = nullptr;  // (N) of c's dtype, added; or of kBiasGradient (M) f32 = the column sums of a (K, M)
  void* aux = nullptr;   // (M, N) of c's dtype: of kGelu what GELU is of, written; of kGeluBackward read
  int64_t aux_ld = 0;
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
// True if the library's f32 products use the stack pointer as an address in the heap (core/signal_stack.h).
bool moves_stack_pointer();
}  // namespace onednn

namespace cuda {
// By cuBLASLt. REQUIRES: K > 0. Products of f32 are of f32, or of tf32 where the stream allows it
// (ops/tf32.h).
void matmul(const MatmulProblem& p, Stream& stream);
// With an epilogue; false, and nothing done, where the library has no kernel with it.
bool matmul_with(const MatmulProblem& p, const MatmulEpilogue& epilogue, Stream& stream);
}  // namespace cuda

}  // namespace ingot
