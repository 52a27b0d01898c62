#include "ingot/profile/llama_f64.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "ingot/core/error.h"
#include "ingot/core/parallel.h"
#include "ingot/ops/cross_entropy.h"

namespace ingot {
namespace {

// A row-major matrix.
struct Matrix {
  int64_t rows = 0, columns = 0;
  std::vector<double> values = {};

  Matrix(int64_t r, int64_t c) : rows(r), columns(c), values(static_cast<size_t>(r * c)) {}
  double* row(int64_t r) { return values.data() + r * columns; }
  const double* row(int64_t r) const { return values.data() + r * columns; }
};

void add(Matrix& to, const Matrix& x) {
  for (size_t i = 0; i < to.values.size(); ++i) to.values[i] += x.values[i];
}

double dot(const double* a, const double* b, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += a[i] * b[i];
  return sum;
}

void add_scaled(double* to, const double* x, double factor, int64_t n) {
  for (int64_t i = 0; i < n; ++i) to[i] += factor * x[i];
}

struct Parameter {
  Matrix w, g;
};

// Computes y = x w^T.
Matrix linear(const Matrix& x, const Parameter& p) {
  Matrix y(x.rows, p.w.rows);
  parallel_for(x.rows, 1, [&](int64_t begin, int64_t end) {
    for (int64_t n = begin; n < end; ++n)
      for (int64_t o = 0; o < p.w.rows; ++o) y.row(n)[o] = dot(x.row(n), p.w.row(o), x.columns);
  });
  return y;
}

// Adds the gradient of w to p.g and returns the gradient of x.
Matrix linear_backward(const Matrix& dy, const Matrix& x, Parameter& p) {
  Matrix dx(x.rows, x.columns);
  parallel_for(x.rows, 1, [&](int64_t begin, int64_t end) {
    for (int64_t n = begin; n < end; ++n)
      for (int64_t o = 0; o < p.w.rows; ++o) add_scaled(dx.row(n), p.w.row(o), dy.row(n)[o], x.columns);
  });
  parallel_for(p.w.rows, 1, [&](int64_t begin, int64_t end) {
    for (int64_t n = 0; n < x.rows; ++n)
      for (int64_t o = begin; o < end; ++o) add_scaled(p.g.row(o), x.row(n), dy.row(n)[o], x.columns);
  });
  return dx;
}

double inverse_rms(const double* x, int64_t C, double eps) {
  return 1 / std::sqrt(dot(x, x, C) / static_cast<double>(C) + eps);
}

Matrix rmsnorm(const Matrix& x, const Parameter& p, double eps) {
  Matrix y(x.rows, x.columns);
  for (int64_t n = 0; n < x.rows; ++n) {
    const double r = inverse_rms(x.row(n), x.columns, eps);
    for (int64_t c = 0; c < x.columns; ++c) y.row(n)[c] = x.row(n)[c] * r * p.w.row(0)[c];
  }
  return y;
}

Matrix rmsnorm_backward(const Matrix& dy, const Matrix& x, Parameter& p, double eps) {
  const int64_t C = x.columns;
  Matrix dx(x.rows, C);
  std::vector<double> d(static_cast<size_t>(C));
  for (int64_t n = 0; n < x.rows; ++n) {
    const double r = inverse_rms(x.row(n), C, eps);
    for (int64_t c = 0; c < C; ++c) {
      d[static_cast<size_t>(c)] = dy.row(n)[c] * p.w.row(0)[c];
      p.g.row(0)[c] += dy.row(n)[c] * x.row(n)[c] * r;
    }
    const double along = dot(d.data(), x.row(n), C) / static_cast<double>(C) * r * r;
    for (int64_t c = 0; c < C; ++c) dx.row(n)[c] = r * (d[static_cast<size_t>(c)] - along * x.row(n)[c]);
  }
  return dx;
}

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

// gate_up is (N, 2F), the gate first.
Matrix swiglu(const Matrix& gate_up) {
  const int64_t F = gate_up.columns / 2;
  Matrix y(gate_up.rows, F);
  for (int64_t n = 0; n < y.rows; ++n) {
    const double *gate = gate_up.row(n), *up = gate + F;
    for (int64_t f = 0; f < F; ++f) y.row(n)[f] = gate[f] * sigmoid(gate[f]) * up[f];
  }
  return y;
}

Matrix swiglu_backward(const Matrix& dy, const Matrix& gate_up) {
  const int64_t F = dy.columns;
  Matrix dx(gate_up.rows, gate_up.columns);
  for (int64_t n = 0; n < dy.rows; ++n) {
    const double *gate = gate_up.row(n), *up = gate + F;
    for (int64_t f = 0; f < F; ++f) {
      const double s = sigmoid(gate[f]), d = dy.row(n)[f];
      dx.row(n)[f] = d * up[f] * s * (1 + gate[f] * (1 - s));
      dx.row(n)[F + f] = d * gate[f] * s;
    }
  }
  return dx;
}

// The layout of the columns of qkv (N, (H + 2K) D); rows are sequence by sequence.
struct Heads {
  int64_t B, T, H, K, D;

  int64_t key(int64_t h) const { return (H + h / (H / K)) * D; }  // first column of query head h's key
  int64_t value(int64_t h) const { return key(h) + K * D; }
  double scale() const { return 1 / std::sqrt(static_cast<double>(D)); }
};

// Rotates queries and keys by the angle position * theta^(-2i/D); direction -1 rotates back.
void rotate(Matrix& qkv, const Heads& s, double theta, double direction) {
  const int64_t half = s.D / 2;
  for (int64_t n = 0; n < qkv.rows; ++n)
    for (int64_t i = 0; i < half; ++i) {
      const double frequency = std::pow(theta, static_cast<double>(-2 * i) / static_cast<double>(s.D)),
                   angle = direction * static_cast<double>(n % s.T) * frequency;
      const double cos = std::cos(angle), sin = std::sin(angle);
      for (int64_t h = 0; h < s.H + s.K; ++h) {
        double* x = qkv.row(n) + h * s.D;
        const double first = x[i], second = x[half + i];
        x[i] = first * cos - second * sin;
        x[half + i] = second * cos + first * sin;
      }
    }
}

// Computes p[j], j <= t: the attention weight of position j for query t of head h in sequence b.
void weigh(std::vector<double>& p, const Matrix& qkv, const Heads& s, int64_t b, int64_t h, int64_t t) {
  const double* q = qkv.row(b * s.T + t) + h * s.D;
  double most = -INFINITY, sum = 0;
  for (int64_t j = 0; j <= t; ++j) {
    double& score = p[static_cast<size_t>(j)];
    score = dot(q, qkv.row(b * s.T + j) + s.key(h), s.D) * s.scale();
    most = std::max(most, score);
  }
  for (int64_t j = 0; j <= t; ++j)
    sum += p[static_cast<size_t>(j)] = std::exp(p[static_cast<size_t>(j)] - most);
  for (int64_t j = 0; j <= t; ++j) p[static_cast<size_t>(j)] /= sum;
}

Matrix attention(const Matrix& qkv, const Heads& s) {
  Matrix y(qkv.rows, s.H * s.D);
  std::vector<double> p(static_cast<size_t>(s.T));
  for (int64_t b = 0; b < s.B; ++b)
    for (int64_t h = 0; h < s.H; ++h)
      for (int64_t t = 0; t < s.T; ++t) {
        weigh(p, qkv, s, b, h, t);
        for (int64_t j = 0; j <= t; ++j)
          add_scaled(y.row(b * s.T + t) + h * s.D, qkv.row(b * s.T + j) + s.value(h),
                     p[static_cast<size_t>(j)], s.D);
      }
  return y;
}

Matrix attention_backward(const Matrix& dy, const Matrix& qkv, const Heads& s) {
  Matrix d(qkv.rows, qkv.columns);
  std::vector<double> p(static_cast<size_t>(s.T)), dp(p);
  for (int64_t b = 0; b < s.B; ++b)
    for (int64_t h = 0; h < s.H; ++h)
      for (int64_t t = 0; t < s.T; ++t) {
        weigh(p, qkv, s, b, h, t);
        const int64_t n = b * s.T + t;
        const double* dout = dy.row(n) + h * s.D;
        double mean = 0;
        for (int64_t j = 0; j <= t; ++j) {
          const auto k = static_cast<size_t>(j);
          dp[k] = dot(dout, qkv.row(b * s.T + j) + s.value(h), s.D);
          mean += dp[k] * p[k];
          add_scaled(d.row(b * s.T + j) + s.value(h), dout, p[k], s.D);
        }
        for (int64_t j = 0; j <= t; ++j) {
          const auto k = static_cast<size_t>(j);
          const double d_score = p[k] * (dp[k] - mean) * s.scale();
          add_scaled(d.row(n) + h * s.D, qkv.row(b * s.T + j) + s.key(h), d_score, s.D);
          add_scaled(d.row(b * s.T + j) + s.key(h), qkv.row(n) + h * s.D, d_score, s.D);
        }
      }
  return d;
}

class Llama {
 public:
  Llama(const Transformer& model, const std::vector<Tensor>& weights)
      : config_(model.config()), list_(model.params()) {
    const ModelConfig& c = config_;
    INGOT_CHECK(c.norm == NormKind::kRmsNorm && c.norm_place == NormPlace::kBefore &&
                    c.positions == PositionKind::kRope && c.mlp == Activation::kSwiglu &&
                    !c.has_bias_of_qkv() && !c.has_qk_norm && c.window == 0 && c.nope_every == 0 &&
                    c.rope_scaling.kind == RopeScaling::Kind::kNone && c.dropout == 0 &&
                    c.cap.kind == LogitCap::kNone && !c.has_own_parts(),
                "llama_f64_gradients: not a plain LLaMA");
    for (size_t id = 0; id < weights.size(); ++id) {
      const Shape& shape = list_.specs()[id].shape;
      const int64_t columns = shape.rank() == 2 ? shape[1] : shape[0];
      Matrix w(shape.elements() / columns, columns);
      std::copy_n(weights[id].as<float>(), shape.elements(), w.values.begin());
      parameters_.push_back({w, Matrix(w.rows, w.columns)});
    }
  }

  LlamaF64Gradients gradients(const MicroBatch& batch) {
    const int64_t B = batch.tokens.dim(0), T = batch.tokens.dim(1);
    const Heads heads{B, T, config_.heads, config_.kv_heads, config_.head_dim};
    Parameter& table = named("embedding.weight");
    const int32_t* tokens = batch.tokens.as<int32_t>();
    Matrix x(B * T, config_.width);
    for (int64_t n = 0; n < B * T; ++n) std::copy_n(table.w.row(tokens[n]), x.columns, x.row(n));
    std::vector<Matrix> inputs;
    for (int64_t l = 0; l < config_.layers; ++l) {
      inputs.push_back(x);
      add(x, attend(l, x, heads).out);
      add(x, feed(l, x).out);
    }
    LlamaF64Gradients result;
    Matrix d = head_backward(x, batch.targets.as<int32_t>(), result.loss);
    for (int64_t l = config_.layers; l-- > 0;) block_backward(l, inputs[static_cast<size_t>(l)], heads, d);
    for (int64_t n = 0; n < B * T; ++n) add_scaled(table.g.row(tokens[n]), d.row(n), 1, d.columns);
    for (Parameter& p : parameters_) result.of.push_back(std::move(p.g.values));
    return result;
  }

 private:
  Parameter& named(const std::string& name) {
    const auto spec = std::ranges::find(list_.specs(), name, &ParamSpec::name);
    INGOT_CHECK(spec != list_.specs().end(), "llama_f64_gradients: no parameter is called {}", name);
    return parameters_[static_cast<size_t>(spec - list_.specs().begin())];
  }
  Parameter& of_block(int64_t l, const char* name) {
    return named(fmt::format("blocks.{}.{}.weight", l, name));
  }

  // Half of a block: its output and what its backward reads.
  struct Half {
    Matrix normed, inner, outer, out;
  };
  Half attend(int64_t l, const Matrix& x, const Heads& heads) {
    Matrix normed = rmsnorm(x, of_block(l, "attention.norm"), config_.norm_eps);
    Matrix qkv = linear(normed, of_block(l, "attention.qkv"));
    rotate(qkv, heads, config_.rope_theta, 1);
    Matrix y = attention(qkv, heads);
    Matrix out = linear(y, of_block(l, "attention.proj"));
    return {std::move(normed), std::move(qkv), std::move(y), std::move(out)};
  }
  Half feed(int64_t l, const Matrix& x) {
    Matrix normed = rmsnorm(x, of_block(l, "mlp.norm"), config_.norm_eps);
    Matrix gate_up = linear(normed, of_block(l, "mlp.up"));
    Matrix y = swiglu(gate_up);
    Matrix out = linear(y, of_block(l, "mlp.down"));
    return {std::move(normed), std::move(gate_up), std::move(y), std::move(out)};
  }

  // d is the gradient of the block's output on entry and of its input x on return.
  void block_backward(int64_t l, const Matrix& x, const Heads& heads, Matrix& d) {
    const Half attended = attend(l, x, heads);
    Matrix middle = x;
    add(middle, attended.out);
    const Half fed = feed(l, middle);
    const Matrix d_gate_up =
        swiglu_backward(linear_backward(d, fed.outer, of_block(l, "mlp.down")), fed.inner);
    add(d, rmsnorm_backward(linear_backward(d_gate_up, fed.normed, of_block(l, "mlp.up")), middle,
                            of_block(l, "mlp.norm"), config_.norm_eps));
    Matrix d_qkv = attention_backward(linear_backward(d, attended.outer, of_block(l, "attention.proj")),
                                      attended.inner, heads);
    rotate(d_qkv, heads, config_.rope_theta, -1);
    add(d, rmsnorm_backward(linear_backward(d_qkv, attended.normed, of_block(l, "attention.qkv")), x,
                            of_block(l, "attention.norm"), config_.norm_eps));
  }

  Matrix head_backward(const Matrix& x, const int32_t* targets, double& loss) {
    Parameter &norm = named("head.norm.weight"),
              &table = named(config_.is_tied ? "embedding.weight" : "head.weight");
    const Matrix normed = rmsnorm(x, norm, config_.norm_eps);
    const int64_t V = config_.vocab;
    const int64_t counted = x.rows - std::count(targets, targets + x.rows, kIgnoreIndex);
    const double part = 1 / static_cast<double>(std::max<int64_t>(1, counted));
    Matrix logits = linear(normed, table);
    for (int64_t n = 0; n < x.rows; ++n) {
      double* z = logits.row(n);
      const double most = *std::max_element(z, z + V);
      double sum = 0;
      for (int64_t v = 0; v < V; ++v) sum += std::exp(z[v] - most);
      const double lse = most + std::log(sum);
      const bool is_counted = targets[n] != kIgnoreIndex;
      if (is_counted) loss += (lse - z[targets[n]]) * part;
      // The gradient overwrites the logits; padding rows have probability 0.
      for (int64_t v = 0; v < logits.columns; ++v)
        z[v] = is_counted && v < V ? (std::exp(z[v] - lse) - (v == targets[n] ? 1.0 : 0.0)) * part : 0.0;
    }
    return rmsnorm_backward(linear_backward(logits, normed, table), x, norm, config_.norm_eps);
  }

  ModelConfig config_;
  const ParamList& list_;
  std::vector<Parameter> parameters_;
};

}  // namespace

LlamaF64Gradients llama_f64_gradients(const Transformer& model, const std::vector<Tensor>& weights,
                                      const MicroBatch& batch) {
  return Llama(model, weights).gradients(batch);
}

}  // namespace ingot
