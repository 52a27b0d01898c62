#include "ingot/ops/activation.h"

#include "ingot/core/cuda/cuda_elementwise.h"
#include "ingot/ops/cuda_rows.h"
#include "ingot/ops/elementwise/activation_rules.h"

namespace ingot::cuda {
namespace {

// Calls f with an object of the rule that `kind` selects, in T's arithmetic.
template <typename T, typename F>
void with_rule(Activation kind, F&& f) {
  switch (kind) {
    case Activation::kGeluTanh:
      return f(GeluTanhRule<ThreadMath<T>>{});
    case Activation::kGeluExact:
      return f(GeluExactRule<ThreadMath<T>>{});
    case Activation::kRelu2:
      return f(Relu2Rule<ThreadMath<T>>{});
    case Activation::kSwiglu:
      INGOT_CHECK(false, "activation: SwiGLU has two inputs per output");
  }
}

// A call with the index of an element writes W elements and returns the largest magnitude of them. That costs
// nothing where the caller does not use it.

// Reads x once and writes y once.
template <int W, typename Rule, typename T>
struct Forward {
  T* y;
  const T* x;
  const float* bias;
  uint32_t F;

  __device__ float operator()(int64_t i) const {
    Floats<W> v = load<W>(x + i);
    if (bias) {
      const Floats<W> b = load<W>(bias + RowColumn(i, F).column);
#pragma unroll
      for (int k = 0; k < W; ++k) v.at[k] += b.at[k];
    }
#pragma unroll
    for (int k = 0; k < W; ++k) v.at[k] = Rule::value(v.at[k]);
    store(y + i, v);
    return rounded<T>(larger(0.0f, v));
  }
};

// Writes W elements of dx, from a column of a row on, and returns them before rounding.
template <int W, typename Rule, typename T>
struct Backward {
  T* dx;
  const T *dy, *x;
  const float* bias;
  uint32_t F;

  __device__ __forceinline__ Floats<W> gradient(int64_t i, uint32_t column) const {
    Floats<W> v = load<W>(x + i);
    const Floats<W> d = load<W>(dy + i);
    if (bias) {
      const Floats<W> b = load<W>(bias + column);
#pragma unroll
      for (int k = 0; k < W; ++k) v.at[k] += b.at[k];
    }
#pragma unroll
    for (int k = 0; k < W; ++k) v.at[k] = d.at[k] * Rule::derivative(v.at[k]);
    store(dx + i, v);
    return v;
  }
  __device__ float operator()(int64_t i) const {
    return rounded<T>(larger(0.0f, gradient(i, bias ? RowColumn(i, F).column : 0)));
  }
  // The column sums of dbias call these.
  __device__ Floats<W> operator()(int64_t n, int64_t column) const {
    return gradient(n * F + column, static_cast<uint32_t>(column));
  }
  __device__ float as_stored(float v) const { return rounded<T>(v); }
};

template <int W, typename T>
struct SwigluForward {
  T* y;
  const T* gate_up;
  uint32_t F;

  __device__ float operator()(int64_t i) const {
    const RowColumn at(i, F);
    const T* gate = gate_up + int64_t{at.row} * 2 * F + at.column;
    const Floats<W> g = load<W>(gate), u = load<W>(gate + F);
    Floats<W> v;
#pragma unroll
    for (int k = 0; k < W; ++k) v.at[k] = SiluRule<ThreadMath<T>>::value(g.at[k]) * u.at[k];
    store(y + i, v);
    return rounded<T>(larger(0.0f, v));
  }
};

template <int W, typename T>
struct SwigluBackward {
  T* d_gate_up;
  const T *dy, *gate_up;
  uint32_t F;

  __device__ float operator()(int64_t i) const {
    using Silu = SiluRule<ThreadMath<T>>;
    const RowColumn at(i, F);
    const int64_t gate = int64_t{at.row} * 2 * F + at.column;
    const Floats<W> g = load<W>(gate_up + gate), u = load<W>(gate_up + gate + F), d = load<W>(dy + i);
    Floats<W> d_gate, d_up;
#pragma unroll
    for (int k = 0; k < W; ++k) {
      d_gate.at[k] = d.at[k] * u.at[k] * Silu::derivative(g.at[k]);
      d_up.at[k] = d.at[k] * Silu::value(g.at[k]);
    }
    store(d_gate_up + gate, d_gate);
    store(d_gate_up + gate + F, d_up);
    return rounded<T>(larger(larger(0.0f, d_gate), d_up));
  }
};

}  // namespace

void activation_forward(const Tensor& y, const Tensor& x, const Tensor& bias, Activation kind,
                        Stream& stream) {
  const char* op = "activation_forward";
  const int64_t N = x.dim(0), F = x.dim(1);
  const uint32_t length = row_length(N, F, op);
  with_dtype(x.dtype, op, [&]<typename T>() {
    with_width<T>(allows_wide(F, y, x, bias), [&](auto width) {
      with_rule<T>(kind, [&]<typename Rule>(Rule) {
        constexpr int W = decltype(width)::value;
        const Forward<W, Rule, T> f{y.as<T>(), x.as<T>(), optional<float>(bias), length};
        launch_elementwise<W>(N * F, y, op, stream, f);
      });
    });
  });
}

void activation_backward(const ActivationBackwardOperands& t, Stream& stream) {
  const char* op = "activation_backward";
  const Tensor &dx = t.dx, &dbias = t.dbias, &dy = t.dy, &x = t.x, &bias = t.bias;
  const int64_t N = x.dim(0), F = x.dim(1);
  const uint32_t length = row_length(N, F, op);
  with_dtype(x.dtype, op, [&]<typename T>() {
    with_width<T>(allows_wide(F, dx, dy, x, bias), [&](auto width) {
      with_rule<T>(t.kind, [&]<typename Rule>(Rule) {
        constexpr int W = decltype(width)::value;
        const Backward<W, Rule, T> f{dx.as<T>(), dy.as<T>(), x.as<T>(), optional<float>(bias), length};
        if (dbias && dx.amax)
          launch_sum_columns<W, true>(dbias, row_scratch(t.scratch, 1, F, op), N, op, stream, f,
                                      amax_bits(dx));
        else if (dbias)
          launch_sum_columns<W>(dbias, row_scratch(t.scratch, 1, F, op), N, op, stream, f);
        else
          launch_elementwise<W>(N * F, dx, op, stream, f);
      });
    });
  });
}

void swiglu_forward(const Tensor& y, const Tensor& gate_up, Stream& stream) {
  const char* op = "swiglu_forward";
  const int64_t N = y.dim(0), F = y.dim(1);
  const uint32_t length = row_length(N, F, op);
  with_dtype(y.dtype, op, [&]<typename T>() {
    with_width<T>(allows_wide(F, y, gate_up), [&](auto width) {
      constexpr int W = decltype(width)::value;
      launch_elementwise<W>(N * F, y, op, stream, SwigluForward<W, T>{y.as<T>(), gate_up.as<T>(), length});
    });
  });
}

void swiglu_backward(const Tensor& d_gate_up, const Tensor& dy, const Tensor& gate_up, Stream& stream) {
  const char* op = "swiglu_backward";
  const int64_t N = dy.dim(0), F = dy.dim(1);
  const uint32_t length = row_length(N, F, op);
  with_dtype(dy.dtype, op, [&]<typename T>() {
    with_width<T>(allows_wide(F, d_gate_up, dy, gate_up), [&](auto width) {
      constexpr int W = decltype(width)::value;
      launch_elementwise<W>(N * F, d_gate_up, op, stream,
                            SwigluBackward<W, T>{d_gate_up.as<T>(), dy.as<T>(), gate_up.as<T>(), length});
    });
  });
}

}  // namespace ingot::cuda
