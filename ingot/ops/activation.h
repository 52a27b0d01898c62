// Activations of the feed-forward layer, fused with the bias of the preceding linear, and SwiGLU.
//
//   kGeluTanh   x / 2 * (1 + tanh(sqrt(2/pi) * (x + 0.044715 x^3)))   (Hendrycks & Gimpel 2016,
//                                                                     arXiv:1606.08415)
//   kGeluExact  x * Phi(x) = x / 2 * (1 + erf(x / sqrt 2))            (same paper)
//   kRelu2      max(x, 0)^2                                           (So et al. 2021, arXiv:2109.08668)
//   kSwiglu     silu(gate) * up, silu(x) = x * sigmoid(x)             (Shazeer 2020, arXiv:2002.05202)
//
// Shapes: x, y, dx, dy (N, F); gate_up (N, 2F) with the gate in columns [0, F) and up in [F, 2F). These
// are f32 or bf16, all of one dtype, and contiguous. bias, dbias (F) f32. Every op computes in f32 and
// rounds once. ops/elementwise/activation_rules.h defines the formulas. The ops raise the amax of their
// result (Tensor::with_amax).
#pragma once

#include "ingot/core/stream.h"
#include "ingot/core/tensor.h"

namespace ingot {

enum class Activation { kGeluTanh, kGeluExact, kRelu2, kSwiglu };

// y = f(x + bias). bias may be absent. y may alias x. REQUIRES, here and in backward: kind is not kSwiglu.
void activation_forward(const Tensor& y, const Tensor& x, const Tensor& bias, Activation kind,
                        Stream& stream);

// dx = dy * f'(x + bias), where x is the input of forward. dbias += column sums of dx before rounding. dx may
// alias dy or x.
struct ActivationBackwardOperands {
  Tensor dx = {}, dbias = {};  // dbias may be absent
  Tensor dy = {}, x = {}, bias = {};
  Activation kind = Activation::kGeluTanh;
  Tensor scratch = {};  // for dbias: (num_threads(), F) f32, on a CUDA device (kRowParts, F)
};
void activation_backward(const ActivationBackwardOperands& t, Stream& stream);

// y (N, F) = silu(gate) * up.
void swiglu_forward(const Tensor& y, const Tensor& gate_up, Stream& stream);

// d_gate = dy * up * silu'(gate), d_up = dy * silu(gate). d_gate_up may alias gate_up.
void swiglu_backward(const Tensor& d_gate_up, const Tensor& dy, const Tensor& gate_up, Stream& stream);

}  // namespace ingot
