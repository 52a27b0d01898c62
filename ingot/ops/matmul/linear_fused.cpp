#include "ingot/ops/linear_fused.h"

#include "ingot/core/cuda/cuda_device.h"
#include "ingot/ops/activation.h"
#include "ingot/ops/bias.h"
#include "ingot/ops/cast.h"
#include "ingot/ops/matmul.h"
#include "ingot/ops/matmul/matmul_engines.h"
#include "ingot/ops/residual_add.h"

namespace ingot {
namespace {

// Computes the product with its epilogue on a CUDA device. Returns false, without side effects, on the
// CPU or if the device has no such kernel.
bool runs_fused([[maybe_unused]] const Tensor& c, [[maybe_unused]] const Tensor& a,
                [[maybe_unused]] const Tensor& b, [[maybe_unused]] MatmulForm form,
                [[maybe_unused]] bool accumulate, [[maybe_unused]] const MatmulEpilogue& epilogue,
                [[maybe_unused]] Stream& stream) {
  if (c.device == Device::kCuda && stream.backing == Backing::kAddresses) {
    matmul(c, a, b, form, accumulate, stream);  // the epilogue costs nothing
    return true;
  }
  if constexpr (kHasCuda) {
    if (c.device == Device::kCuda && c.elements() > 0) {
      const Span span(stream.trace, "matmul");
      return cuda::matmul_with(matmul_problem(c, a, b, form, accumulate), epilogue, stream);
    }
  }
  return false;
}

// Returns the bias in the dtype that a fused product requires.
Tensor rounded_bias(const Tensor& b, const Tensor& rounded, DType dtype, Stream& stream) {
  if (b.dtype == dtype || b.device == Device::kCpu) return b;
  cast(rounded, b, stream);
  return rounded;
}

}  // namespace

void linear_bias(const Tensor& y, const Tensor& x, const Tensor& w, const Tensor& b, const Tensor& rounded,
                 Stream& stream) {
  const Tensor bias = rounded_bias(b, rounded, y.dtype, stream);
  if (runs_fused(y, x, w, MatmulForm::kNT, false, {.kind = MatmulEpilogue::Kind::kBias, .bias = bias.data},
                 stream))
    return;
  matmul(y, x, w, MatmulForm::kNT, false, stream);
  bias_forward(y, b, stream);
}

void linear_gelu(const Tensor& act, const Tensor& pre, const Tensor& x, const Tensor& w, const Tensor& b,
                 const Tensor& rounded, Stream& stream) {
  const Tensor bias = rounded_bias(b, rounded, act.dtype, stream);
  const MatmulEpilogue gelu{
      .kind = MatmulEpilogue::Kind::kGelu, .bias = bias.data, .aux = pre.data, .aux_ld = pre.strides[0]};
  if (runs_fused(act, x, w, MatmulForm::kNT, false, gelu, stream)) return;
  matmul(pre, x, w, MatmulForm::kNT, false, stream);
  bias_forward(pre, b, stream);
  activation_forward(act, pre, {}, Activation::kGeluTanh, stream);
}

void linear_gelu_backward(const Tensor& d_pre, const Tensor& dy, const Tensor& w, const Tensor& pre,
                          Stream& stream) {
  const MatmulEpilogue slope{.kind = MatmulEpilogue::Kind::kGeluBackward,
                             .bias = nullptr,
                             .aux = pre.data,
                             .aux_ld = pre.strides[0]};
  if (runs_fused(d_pre, dy, w, MatmulForm::kNN, false, slope, stream)) return;
  matmul(d_pre, dy, w, MatmulForm::kNN, false, stream);
  activation_backward(d_pre, {}, d_pre, pre, {}, Activation::kGeluTanh, {}, stream);
}

void linear_weight_gradients(const Tensor& dw, const Tensor& db, const Tensor& dy, const Tensor& x,
                             const Tensor& sums, Stream& stream) {
  const Tensor own = sums.rows(0, 1).reshape(db.shape);
  const MatmulEpilogue gradient{.kind = MatmulEpilogue::Kind::kBiasGradient, .bias = own.data};
  if (runs_fused(dw, dy, x, MatmulForm::kTN, true, gradient, stream))
    return residual_add(db, db, own, stream);
  matmul(dw, dy, x, MatmulForm::kTN, true, stream);
  bias_backward(db, dy, sums, stream);
}

}  // namespace ingot
