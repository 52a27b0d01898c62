// Products of 8-bit matrices with cuBLASLt, and what replaces those that it refuses.
#include <algorithm>

#include "ingot/ops/accumulate.h"
#include "ingot/ops/bias.h"
#include "ingot/ops/cast.h"
#include "ingot/ops/cuda_fp8.h"
#include "ingot/ops/matmul/cublaslt_product.h"
#include "ingot/ops/residual_add.h"

namespace ingot::cuda {
namespace {

constexpr int64_t kGranule = 16;  // rows of a block, so that the scales of each begin on 64 bytes

// The operands of a call of matmul_fp8.
struct Fp8Call {
  const Tensor& c;
  const Fp8Operand &a, &b;
  const Fp8ProductMode& mode;

  bool is_by_row() const { return a.inverse.elements() > 1 || b.inverse.elements() > 1; }
  // Returns the whole product without a bias.
  Product product() const {
    const Tensor &x = a.codes, &w = b.codes;
    const MatmulProblem problem{
        MatmulForm::kNT, mode.accumulate, x.dtype,      c.dtype,    c.dim(0),
        c.dim(1),        x.dim(1),        x.data,       w.data,     c.data,
        x.strides[0],    w.strides[0],    c.strides[0], mode.alpha, mode.terms.base.data};
    return {
        problem, x.dtype, w.dtype, {a.inverse.as<float>(), b.inverse.as<float>(), is_by_row(), mode.is_fast}};
  }
};

bool run_fast_or_exact(Product product, Stream& stream) {
  if (run(product, stream)) return true;
  if (!product.fp8.is_fast) return false;
  product.fp8.is_fast = false;
  return run(product, stream);
}

// c = base + the product, or +=.
void multiply(const Fp8Call& call, Stream& stream) {
  const Product whole = call.product();
  if (run_fast_or_exact(whole, stream)) return;
  Fp8ProductMode mode = call.mode;
  mode.accumulate = false;
  mode.terms = {};
  const Tensor &c = call.c, &sums = call.mode.sums, &base = call.mode.terms.base;
  if (base) {
    multiply({c, call.a, call.b, mode}, stream);
    return residual_add(c, base, c, stream);
  }
  const int64_t most = sums ? sums.elements() / c.dim(1) : 0;
  if (!call.mode.accumulate || most == 0) fail_without_kernel(whole);
  const int64_t step = most > kGranule ? most / kGranule * kGranule : most;
  for (int64_t m = 0; m < c.dim(0); m += step) {
    const int64_t end = std::min(m + step, c.dim(0));
    const Tensor block(sums.data, DType::f32, {end - m, c.dim(1)}, c.device);
    const Fp8Operand a{call.a.codes.rows(m, end),
                       call.is_by_row() ? call.a.inverse.rows(m, end) : call.a.inverse};
    multiply({block, a, call.b, mode}, stream);
    accumulate(c.rows(m, end), block, stream);
  }
}

}  // namespace

void matmul_fp8(const Tensor& c, const Fp8Operand& a, const Fp8Operand& b, const Fp8ProductMode& mode,
                Stream& stream) {
  const Tensor &x = a.codes, &w = b.codes;
  INGOT_CHECK(
      x.rank() == 2 && w.rank() == 2 && x.dim(1) == w.dim(1) && c.dim(0) == x.dim(0) && c.dim(1) == w.dim(0),
      "matmul_fp8: c (M, N), a (M, K) and b (N, K) must agree, got {}, {} and {}", c.shape.to_string(),
      x.shape.to_string(), w.shape.to_string());
  const Fp8Call call{c, a, b, mode};
  const int64_t a_scales = a.inverse.elements(), b_scales = b.inverse.elements();
  INGOT_CHECK(a_scales == (call.is_by_row() ? c.dim(0) : 1) && b_scales == (call.is_by_row() ? c.dim(1) : 1),
              "matmul_fp8: one scale for each operand, or one for each of their rows, got {} and {}",
              a_scales, b_scales);
  const Tensor &bias = mode.terms.bias, &base = mode.terms.base;
  INGOT_CHECK(!base || (base.dtype == c.dtype && base.shape == c.shape && base.strides[0] == c.strides[0]),
              "matmul_fp8: base must have c's dtype, shape and strides, got {} {}", name(base.dtype),
              base.shape.to_string());
  INGOT_CHECK(!mode.sums || (mode.sums.dtype == DType::f32 && mode.sums.is_contiguous()),
              "matmul_fp8: sums must be contiguous f32, got {}", name(mode.sums.dtype));
  if (!bias) return multiply(call, stream);
  const auto separate = [&] {
    multiply(call, stream);
    bias_forward(c, bias, stream);
  };
  // cuBLASLt reads the bias of an f32 result of 8-bit operands as bf16, which would round it.
  if (c.dtype == DType::f32) return separate();
  const Tensor& rounded = mode.terms.rounded;
  cast(rounded, bias, stream);
  Product product = call.product();
  product.epilogue = {.kind = MatmulEpilogue::Kind::kBias, .bias = rounded.data};
  const auto fused = [&] { return run_fast_or_exact(product, stream); };
  if (!prefers_fused({product, fused, separate}, stream) || !fused()) separate();
}

}  // namespace ingot::cuda
