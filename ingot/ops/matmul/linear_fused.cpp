#include "ingot/ops/linear_fused.h"

#include <functional>
#include <vector>

#include "ingot/core/cuda/cuda_device.h"
#include "ingot/ops/activation.h"
#include "ingot/ops/bias.h"
#include "ingot/ops/cast.h"
#include "ingot/ops/matmul.h"
#include "ingot/ops/matmul/cublaslt_product.h"
#include "ingot/ops/residual_add.h"

namespace ingot {
namespace {

// The operands of a product with an epilogue.
struct Fusible {
  Tensor c, a, b;
  MatmulForm form;
  MatmulEpilogue epilogue;
  Tensor base = {};               // added to the product
  bool adds = false;              // the product is added to c
  std::vector<Tensor> sums = {};  // results whose values the computation adds to
};

// Computes the product and what follows it: on the CPU, and where a CUDA device is not faster with the
// epilogue, by separate(). `rest` follows the product with the epilogue.
void run_faster(
    const Fusible& f, const std::function<void()>& separate, Stream& stream,
    const std::function<void()>& rest = [] {}) {
  if (f.c.device == Device::kCuda && stream.backing == Backing::kAddresses) {
    matmul(f.c, f.a, f.b, f.form, f.adds, stream);  // the epilogue costs nothing
    return rest();
  }
  if constexpr (kHasCuda) {
    if (f.c.device == Device::kCuda && f.c.elements() > 0) {
      MatmulProblem problem = matmul_problem(f.c, f.a, f.b, f.form, f.adds);
      problem.addend = f.base.data;
      const cuda::Product product = cuda::plain_product(problem, f.epilogue, stream);
      const auto fused = [&] {
        const Span span(stream.trace, "matmul");
        const bool has_run = cuda::run(product, stream);
        if (has_run) rest();
        return has_run;
      };
      if (cuda::prefers_fused({product, fused, separate, f.sums}, stream) && fused()) return;
    }
  }
  separate();
}

// Returns the bias in the dtype that a fused product requires.
Tensor rounded_bias(const Tensor& b, const Tensor& rounded, DType dtype, Stream& stream) {
  if (b.dtype == dtype || b.device == Device::kCpu) return b;
  cast(rounded, b, stream);
  return rounded;
}

}  // namespace

void linear_sum(const Tensor& y, const Tensor& x, const Tensor& w, const LinearTerms& terms, Stream& stream) {
  const Tensor& base = terms.base;
  INGOT_CHECK(!base || (base.dtype == y.dtype && base.shape == y.shape && base.data != y.data),
              "linear_sum: base must be another tensor of y's dtype and shape, got {} {}", name(base.dtype),
              base.shape.to_string());
  MatmulEpilogue epilogue;
  if (terms.bias) {
    const Tensor bias = rounded_bias(terms.bias, terms.rounded, y.dtype, stream);
    epilogue = {.kind = MatmulEpilogue::Kind::kBias, .bias = bias.data};
  }
  const auto separate = [&] {
    matmul(y, x, w, MatmulForm::kNT, false, stream);
    if (terms.bias) bias_forward(y, terms.bias, stream);
    if (base) residual_add(y, base, y, stream);
  };
  run_faster({y, x, w, MatmulForm::kNT, epilogue, base}, separate, stream);
}

void linear_gelu(const Tensor& act, const Tensor& pre, const Tensor& x, const Tensor& w, const Tensor& b,
                 const Tensor& rounded, Stream& stream) {
  const Tensor bias = rounded_bias(b, rounded, act.dtype, stream);
  const MatmulEpilogue gelu{
      .kind = MatmulEpilogue::Kind::kGelu, .bias = bias.data, .aux = pre.data, .aux_ld = pre.strides[0]};
  const auto separate = [&] {
    matmul(pre, x, w, MatmulForm::kNT, false, stream);
    bias_forward(pre, b, stream);
    activation_forward(act, pre, {}, Activation::kGeluTanh, stream);
  };
  run_faster({act, x, w, MatmulForm::kNT, gelu}, separate, stream);
}

void linear_gelu_backward(const Tensor& d_pre, const Tensor& dy, const Tensor& w, const Tensor& pre,
                          Stream& stream) {
  const MatmulEpilogue slope{.kind = MatmulEpilogue::Kind::kGeluBackward,
                             .bias = nullptr,
                             .aux = pre.data,
                             .aux_ld = pre.strides[0]};
  const auto separate = [&] {
    matmul(d_pre, dy, w, MatmulForm::kNN, false, stream);
    activation_backward({.dx = d_pre, .dy = d_pre, .x = pre, .kind = Activation::kGeluTanh}, stream);
  };
  run_faster({d_pre, dy, w, MatmulForm::kNN, slope}, separate, stream);
}

void linear_weight_gradients(const WeightGradient& dw, const Tensor& db, const Tensor& dy, const Tensor& x,
                             const Tensor& sums, Stream& stream) {
  const Tensor own = sums.rows(0, 1).reshape(db.shape);
  const MatmulEpilogue gradient{.kind = MatmulEpilogue::Kind::kBiasGradient, .bias = own.data};
  const auto separate = [&] {
    matmul(dw.dw, dy, x, MatmulForm::kTN, dw.adds, stream);
    bias_backward(db, dy, sums, stream);
  };
  Fusible product{dw.dw, dy, x, MatmulForm::kTN, gradient, {}, dw.adds, {db}};
  if (dw.adds) product.sums.push_back(dw.dw);
  run_faster(product, separate, stream, [&] { residual_add(db, db, own, stream); });
}

}  // namespace ingot
