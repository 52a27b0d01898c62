#include "ingot/ops/activation.h"

#include <algorithm>

#include "ingot/core/cuda/cuda_device.h"
#include "ingot/core/dispatch.h"
#include "ingot/core/parallel.h"
#include "ingot/core/work.h"
#include "ingot/ops/elementwise/activation_rules.h"
#include "ingot/ops/row_sum.h"
#include "ingot/ops/simd/vec.h"
#include "ingot/ops/simd/vec_math.h"

namespace ingot {

namespace cuda {  // activation.cu
decltype(ingot::activation_forward) activation_forward;
decltype(ingot::activation_backward) activation_backward;
decltype(ingot::swiglu_forward) swiglu_forward;
decltype(ingot::swiglu_backward) swiglu_backward;
}  // namespace cuda

namespace {

using vec::Vec;
using Silu = SiluRule<VecMath>;

// Returns the minimum number of rows per thread: enough elements to be worth waking it.
int64_t grain_rows(int64_t F) { return std::max<int64_t>(1, 8192 / std::max<int64_t>(F, 1)); }

template <typename Rule, typename T>
void row_forward(T* y, const T* x, const float* bias, int64_t F) {
  vec::for_each(F, [&](auto load, auto store) {
    const Vec v = load(x);
    store(y, Rule::value(bias ? v + load(bias) : v));
  });
}

template <typename Rule, typename T>
void row_backward(T* dx, float* dbias, const T* dy, const T* x, const float* bias, int64_t F) {
  vec::for_each(F, [&](auto load, auto store) {
    const Vec v = load(x);
    const Vec d = load(dy) * Rule::derivative(bias ? v + load(bias) : v);
    store(dx, d);
    if (dbias) store(dbias, load(dbias) + d);
  });
}

// Calls f with an object of the rule that `kind` selects.
template <typename F>
void with_rule(Activation kind, F&& f) {
  switch (kind) {
    case Activation::kGeluTanh:
      return f(GeluTanhRule<VecMath>{});
    case Activation::kGeluExact:
      return f(GeluExactRule<VecMath>{});
    case Activation::kRelu2:
      return f(Relu2Rule<VecMath>{});
    case Activation::kSwiglu:
      INGOT_CHECK(false, "activation: SwiGLU has two inputs per output");
  }
}

void check_rows(const Tensor& x, const Tensor& bias, const char* op) {
  INGOT_CHECK(x.rank() == 2 && x.is_contiguous(), "{}: x must be (N, F) and contiguous, got {}", op,
              x.shape.to_string());
  if (bias) check_tensor(bias, DType::f32, {x.dim(1)}, "activation: bias");
}

int64_t check_gate_up(const Tensor& gate_up, const char* op) {
  INGOT_CHECK(gate_up.rank() == 2 && gate_up.dim(1) % 2 == 0 && gate_up.is_contiguous(),
              "{}: gate_up must be (N, 2F) and contiguous, got {}", op, gate_up.shape.to_string());
  return gate_up.dim(1) / 2;
}

}  // namespace

void activation_forward(const Tensor& y, const Tensor& x, const Tensor& bias, Activation kind,
                        Stream& stream) {
  const OpSpan span(stream, "activation", traffic({y, x, bias}));
  if (span.plans()) return;
  check_rows(x, bias, "activation_forward");
  check_tensor(y, x.dtype, x.shape, "activation_forward: y");
  if constexpr (kHasCuda) {
    if (x.device == Device::kCuda) return cuda::activation_forward(y, x, bias, kind, stream);
  }
  const int64_t N = x.dim(0), F = x.dim(1);
  const float* bias_row = bias ? bias.as<float>() : nullptr;
  with_dtype(x.dtype, __func__, [&]<typename T>() {
    with_rule(kind, [&]<typename Rule>(Rule) {
      parallel_for(N, grain_rows(F), [&](int64_t begin, int64_t end) {
        for (int64_t n = begin; n < end; ++n)
          row_forward<Rule>(y.as<T>() + n * F, x.as<T>() + n * F, bias_row, F);
      });
    });
  });
}

void activation_backward(const ActivationBackwardOperands& t, Stream& stream) {
  const Tensor &dx = t.dx, &dbias = t.dbias, &dy = t.dy, &x = t.x, &bias = t.bias;
  const OpSpan span(stream, "activation", traffic({dx, dbias, dy, x, bias}));
  if (span.plans()) return;
  check_rows(x, bias, "activation_backward");
  check_tensor(dx, x.dtype, x.shape, "activation_backward: dx");
  check_tensor(dy, x.dtype, x.shape, "activation_backward: dy");
  const int64_t N = x.dim(0), F = x.dim(1);
  if (dbias) check_tensor(dbias, DType::f32, {F}, "activation_backward: dbias");
  if constexpr (kHasCuda) {
    if (x.device == Device::kCuda) return cuda::activation_backward(t, stream);
  }
  const float* bias_row = bias ? bias.as<float>() : nullptr;
  RowSum dbias_sum(dbias, t.scratch);
  with_dtype(x.dtype, __func__, [&]<typename T>() {
    with_rule(t.kind, [&]<typename Rule>(Rule) {
      parallel_ranges(N, grain_rows(F), [&](int thread, int64_t begin, int64_t end) {
        float* dbias_partial = dbias ? dbias_sum.partial(thread) : nullptr;
        for (int64_t n = begin; n < end; ++n)
          row_backward<Rule>(dx.as<T>() + n * F, dbias_partial, dy.as<T>() + n * F, x.as<T>() + n * F,
                             bias_row, F);
      });
    });
  });
  dbias_sum.finish();
}

void swiglu_forward(const Tensor& y, const Tensor& gate_up, Stream& stream) {
  const OpSpan span(stream, "activation", traffic({y, gate_up}));
  if (span.plans()) return;
  const int64_t F = check_gate_up(gate_up, "swiglu_forward"), N = gate_up.dim(0);
  check_tensor(y, gate_up.dtype, {N, F}, "swiglu_forward: y");
  if constexpr (kHasCuda) {
    if (y.device == Device::kCuda) return cuda::swiglu_forward(y, gate_up, stream);
  }
  with_dtype(gate_up.dtype, __func__, [&]<typename T>() {
    parallel_for(N, grain_rows(F), [&](int64_t begin, int64_t end) {
      for (int64_t n = begin; n < end; ++n) {
        T* y_row = y.as<T>() + n * F;
        const T* gate = gate_up.as<T>() + n * 2 * F;
        const T* up = gate + F;
        vec::for_each(F, [&](auto load, auto store) { store(y_row, Silu::value(load(gate)) * load(up)); });
      }
    });
  });
}

void swiglu_backward(const Tensor& d_gate_up, const Tensor& dy, const Tensor& gate_up, Stream& stream) {
  const OpSpan span(stream, "activation", traffic({d_gate_up, dy, gate_up}));
  if (span.plans()) return;
  const int64_t F = check_gate_up(gate_up, "swiglu_backward"), N = gate_up.dim(0);
  check_tensor(d_gate_up, gate_up.dtype, gate_up.shape, "swiglu_backward: d_gate_up");
  check_tensor(dy, gate_up.dtype, {N, F}, "swiglu_backward: dy");
  if constexpr (kHasCuda) {
    if (dy.device == Device::kCuda) return cuda::swiglu_backward(d_gate_up, dy, gate_up, stream);
  }
  with_dtype(gate_up.dtype, __func__, [&]<typename T>() {
    parallel_for(N, grain_rows(F), [&](int64_t begin, int64_t end) {
      for (int64_t n = begin; n < end; ++n) {
        const T* gate = gate_up.as<T>() + n * 2 * F;
        const T* up = gate + F;
        const T* dy_row = dy.as<T>() + n * F;
        T* d_gate = d_gate_up.as<T>() + n * 2 * F;
        T* d_up = d_gate + F;
        vec::for_each(F, [&](auto load, auto store) {
          const Vec g = load(gate), u = load(up), d = load(dy_row);
          store(d_gate, d * u * Silu::derivative(g));
          store(d_up, d * Silu::value(g));
        });
      }
    });
  });
}

}  // namespace ingot
