// The engines behind ops/matmul. Internal to ops.
#pragma once

#include <cstdint>
#include <memory>

#include "ingot/core/stream.h"
#include "ingot/ops/matmul.h"

namespace ingot {

// A checked product with c (M,N); leading dims are in elements. The engines require M, N, K > 0: they
// would leave c as it is, or round what their buffers hold.
struct MatmulProblem {
  MatmulForm form;
  bool accumulate;
  DType in, out;
  int64_t M, N, K;
  const void *a, *b;
  void* c;
  int64_t lda, ldb, ldc;
  float alpha = 1;               // factor of the product
  const void* addend = nullptr;  // a matrix of c's dtype and strides: c = addend + product; cuBLASLt only
};

// Checks the operands and returns the problem with alpha = 1.
MatmulProblem matmul_problem(const Tensor& c, const Tensor& a, const Tensor& b, MatmulForm form,
                             bool accumulate);

// The epilogue that cuBLASLt fuses into a product (ops/linear_fused.h).
struct MatmulEpilogue {
  enum class Kind { kNone, kBias, kGelu, kGeluBackward, kBiasGradient };
  Kind kind = Kind::kNone;
  void* bias = nullptr;  // (N) of c's dtype, added; kBiasGradient: (M) f32 = column sums of a (K, M)
  void* aux = nullptr;   // (M, N) of c's dtype: GELU's input, written by kGelu, read by kGeluBackward
  int64_t aux_ld = 0;
};

// The packing buffers of the engines for a stream: one per thread, made once.
struct MatmulPanels : StreamResource {
  std::unique_ptr<StreamResource> portable, amx;
};
inline MatmulPanels& matmul_panels(Stream& stream) {
  if (!stream.matmul_panels) stream.matmul_panels = std::make_unique<MatmulPanels>();
  return static_cast<MatmulPanels&>(*stream.matmul_panels);
}

namespace portable {
// kNT products of up to this many rows stream b from memory once, as it is.
inline constexpr int64_t kFewRows = 4;
// Packs panels of a and b to f32 and multiplies them in registers. Supports every form and dtype.
void matmul(const MatmulProblem& p, Stream& stream);
}  // namespace portable

namespace amx {
// Returns true if the processor and the Linux kernel grant the tile unit. Defined only in builds with
// AMX (kHasAmx).
bool is_available();
// REQUIRES: in is bf16, out is f32 or bf16. Supports every form.
void matmul(const MatmulProblem& p, Stream& stream);
}  // namespace amx

namespace onednn {
// Returns true if oneDNN has a fast kernel for the dtype on this machine.
bool is_fast(DType in);
void matmul(const MatmulProblem& p, Stream& stream);
const char* version();
// Returns true if the library's f32 products use the stack pointer as an address in the heap
// (core/process/signal_stack.h).
bool moves_stack_pointer();
}  // namespace onednn

namespace cuda {
// Computes the product with cuBLASLt. REQUIRES: K > 0. f32 products use TF32 if the stream allows it
// (ops/tf32.h).
void matmul(const MatmulProblem& p, Stream& stream);
}  // namespace cuda

}  // namespace ingot
