#include "ingot/ops/matmul/cublaslt_product.h"

#include <fmt/core.h>

#include <algorithm>

#include "ingot/core/error.h"
#include "ingot/ops/tf32.h"

namespace ingot::cuda {
namespace {

const char* name_of(MatmulForm form) {
  return form == MatmulForm::kNT ? "NT" : form == MatmulForm::kNN ? "NN" : "TN";
}

const char* name_of(MatmulEpilogue::Kind kind) {
  using Kind = MatmulEpilogue::Kind;
  switch (kind) {
    case Kind::kBias:
      return ", BIAS";
    case Kind::kGelu:
      return ", GELU_AUX_BIAS";
    case Kind::kGeluBackward:
      return ", DGELU";
    case Kind::kBiasGradient:
      return ", BGRADB";
    default:
      return "";
  }
}

}  // namespace

Product plain_product(const MatmulProblem& problem, const MatmulEpilogue& epilogue, Stream& stream) {
  return {problem, problem.in, problem.in, {}, epilogue, problem.in == DType::f32 && allows_tf32(stream)};
}

uint32_t alignment(const void* p) {
  const uintptr_t lowest = reinterpret_cast<uintptr_t>(p) & -reinterpret_cast<uintptr_t>(p);
  return static_cast<uint32_t>(std::min<uintptr_t>(lowest, 256));
}

std::string Product::key() const {
  const MatmulProblem& p = problem;
  std::string text = fmt::format("{}.{}.{}.{}.{}.{}x{}x{}.{}.{}.{}.{}.{}.{}.{}{}{}", static_cast<int>(p.form),
                                 name(a), name(b), name(p.out), p.accumulate ? 1 : 0, p.M, p.N, p.K, p.lda,
                                 p.ldb, p.ldc, alignment(p.a), alignment(p.b), alignment(p.c),
                                 fp8.is_fast ? 1 : 0, fp8.is_by_row ? "r" : "", is_tf32 ? "t" : "");
  if (p.addend) text += fmt::format(".+{}", alignment(p.addend));
  if (epilogue.kind != MatmulEpilogue::Kind::kNone)
    text += fmt::format(".e{}.{}.{}.{}", static_cast<int>(epilogue.kind), alignment(epilogue.bias),
                        epilogue.aux_ld, alignment(epilogue.aux));
  return text;
}

std::string Product::kind() const {
  return fmt::format("{} x {} -> {}, {}{}{}{}{}{}{}", name(a), name(b), name(problem.out),
                     name_of(problem.form), is_tf32 ? ", tf32" : "", fp8.is_by_row ? ", scales by row" : "",
                     fp8.is_fast ? ", fast sums" : "", name_of(epilogue.kind),
                     problem.accumulate ? ", beta 1" : "", problem.addend ? ", C != D" : "");
}

bool Product::is_special() const {
  return fp8.a || problem.addend || epilogue.kind != MatmulEpilogue::Kind::kNone;
}

void fail_without_kernel(const Product& product) {
  const MatmulProblem& p = product.problem;
  fail(ErrorKind::kInternal, "cuBLASLt has no kernel for a product of {}, {} x {} x {}{}", product.kind(),
       p.M, p.N, p.K,
       product.fp8.a ? "; precision.fp8 = \"none\" and head.precision = \"bf16\" train without 8-bit products"
                     : "");
}

}  // namespace ingot::cuda
