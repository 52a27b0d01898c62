#include "ingot/ops/matmul.h"

#include <fmt/core.h>

#include <array>
#include <string>

#include "ingot/core/copy.h"
#include "ingot/core/cuda/cuda_device.h"
#include "ingot/core/work.h"
#include "ingot/ops/matmul/matmul_engines.h"
#include "ingot/ops/matmul_signals.h"

namespace ingot {
namespace {

#ifdef INGOT_WITH_ONEDNN
constexpr bool kHasOneDnn = true;
#else
constexpr bool kHasOneDnn = false;
#endif
#if defined(__AMX_BF16__) && defined(__AVX512BW__) && defined(__linux__)
constexpr bool kHasAmx = true;
#else
constexpr bool kHasAmx = false;
#endif
// Returns true if Ingot's AMX engine runs on this machine.
bool has_amx() {
  if constexpr (kHasAmx) return amx::is_available();
  return false;
}

// Returns true for products that Ingot's AMX engine computes faster (docs/benchmarks/matmul.md): all but
// those of a few rows.
[[maybe_unused]] bool is_for_amx([[maybe_unused]] const MatmulProblem& p) {
  constexpr int64_t kLeastRows = 16;
  if constexpr (kHasAmx) return p.in == DType::bf16 && p.out != DType::f16 && p.M >= kLeastRows && has_amx();
  return false;
}

// Returns true for the products of generation, whose time is that of reading the weights. The portable kernel
// reads them as fast as memory delivers them (docs/benchmarks/matmul.md).
bool is_streamed(const MatmulProblem& p) { return p.form == MatmulForm::kNT && p.M <= portable::kFewRows; }

// Computes a sum of no products: c is zero, or stays as it is if it accumulates. The engines need K > 0.
void multiply_nothing(const Tensor& c, bool accumulate, Stream& stream) {
  if (accumulate) return;
  if (c.is_contiguous()) return fill_zero(c, stream);
  for (int64_t row = 0; row < c.dim(0); ++row) fill_zero(c.rows(row, row + 1), stream);
}

bool is_half(DType dtype) { return dtype == DType::bf16 || dtype == DType::f16; }

void check_operand(const Tensor& t, int64_t rows, int64_t columns, const char* what) {
  INGOT_CHECK(t.rank() == 2 && t.dim(0) == rows && t.dim(1) == columns, "matmul: {} must be ({}, {}), got {}",
              what, rows, columns, t.shape.to_string());
  INGOT_CHECK(t.dim(1) <= 1 || t.strides[1] == 1, "matmul: the last dim of {} must be contiguous", what);
}

MatmulProblem make_problem(const Tensor& c, const Tensor& a, const Tensor& b, MatmulForm form, float alpha,
                           bool accumulate) {
  INGOT_CHECK(a.rank() == 2 && b.rank() == 2 && c.rank() == 2, "matmul: operands must be matrices");
  const int64_t M = c.dim(0), N = c.dim(1);
  const int64_t K = form == MatmulForm::kTN ? a.dim(0) : a.dim(1);
  const bool is_a_transposed = form == MatmulForm::kTN, is_b_transposed = form == MatmulForm::kNT;
  check_operand(a, is_a_transposed ? K : M, is_a_transposed ? M : K, "a");
  check_operand(b, is_b_transposed ? N : K, is_b_transposed ? K : N, "b");
  check_operand(c, M, N, "c");
  INGOT_CHECK(a.dtype == b.dtype && (a.dtype == DType::f32 || is_half(a.dtype)),
              "matmul: a and b must both be f32, bf16 or f16, got {} and {}", name(a.dtype), name(b.dtype));
  INGOT_CHECK(c.dtype == DType::f32 || (is_half(c.dtype) && is_half(a.dtype)),
              "matmul: c of {} operands must be f32{}, got {}", name(a.dtype),
              is_half(a.dtype) ? ", bf16 or f16" : "", name(c.dtype));
  INGOT_CHECK(!accumulate || c.dtype == DType::f32, "matmul: only an f32 c accumulates, got {}",
              name(c.dtype));
  return {form,   accumulate,   a.dtype,      c.dtype,      M,    N, K, a.data, b.data,
          c.data, a.strides[0], b.strides[0], c.strides[0], alpha};
}

Work product_work(const Tensor& c, const Tensor& a, const Tensor& b, const MatmulProblem& p) {
  constexpr std::array kForms{"nt", "nn", "tn"};
  Work work = traffic({a, b, c});
  if (p.accumulate) work.bytes += static_cast<double>(c.bytes());
  work.flops = 2 * static_cast<double>(p.M) * static_cast<double>(p.N) * static_cast<double>(p.K);
  work.dtype = p.in;
  work.form = kForms[static_cast<size_t>(p.form)];
  return work;
}

}  // namespace

MatmulProblem matmul_problem(const Tensor& c, const Tensor& a, const Tensor& b, MatmulForm form,
                             bool accumulate) {
  return make_problem(c, a, b, form, 1.0f, accumulate);
}

void matmul(const Tensor& c, const Tensor& a, const Tensor& b, MatmulForm form, bool accumulate,
            Stream& stream) {
  scaled_matmul(c, a, b, form, 1.0f, accumulate, stream);
}

void scaled_matmul(const Tensor& c, const Tensor& a, const Tensor& b, MatmulForm form, float alpha,
                   bool accumulate, Stream& stream) {
  const MatmulProblem p = make_problem(c, a, b, form, alpha, accumulate);
  const OpSpan span(stream, "matmul", product_work(c, a, b, p));
  if (span.plans()) return;
  if (p.M == 0 || p.N == 0) return;
  if (p.K == 0) return multiply_nothing(c, accumulate, stream);
  if constexpr (kHasCuda) {
    if (c.device == Device::kCuda) return cuda::matmul(p, stream);
  }
  if (is_streamed(p)) return portable::matmul(p, stream);
  if constexpr (kHasAmx) {
    if (is_for_amx(p)) return amx::matmul(p, stream);
  }
  if constexpr (kHasOneDnn) {
    if (p.out != DType::f16 && onednn::is_fast(p.in)) return onednn::matmul(p, stream);
  }
  portable::matmul(p, stream);
}

bool products_move_stack_pointer() {
#ifdef INGOT_WITH_ONEDNN
  return onednn::moves_stack_pointer();
#else
  return false;
#endif
}

const char* matmul_engine(DType dtype, Device device) {
  if (device == Device::kCuda) return "cuBLASLt";
  const bool is_on_amx = dtype == DType::bf16 && has_amx();
  if constexpr (kHasOneDnn) {
    // Products that is_for_amx() excludes run on oneDNN.
    static const std::string both = fmt::format("Ingot's AMX kernel and {}", onednn::version());
    if (onednn::is_fast(dtype)) return is_on_amx ? both.c_str() : onednn::version();
  }
  return is_on_amx ? "Ingot's AMX kernel and portable" : "portable";
}

}  // namespace ingot
