#include "ingot/optim/adafactor.h"

#include <algorithm>
#include <cmath>

#include "ingot/core/parallel.h"
#include "ingot/optim/sum_of_squares.h"
#include "ingot/optim/weight_pass.h"

namespace ingot {
namespace {

constexpr double kDecayExponent = -0.8, kSmallestScale = 1e-3;

// Rows are taken in strips whose number depends on the shape alone; a vector is a row per element.
struct Strips {
  static constexpr int64_t kMost = 32, kElements = 1 << 14;
  int64_t rows, columns, rows_each, count;

  explicit Strips(const Shape& shape) : rows(shape[0]), columns(shape.rank() == 2 ? shape[1] : 1) {
    const int64_t enough = (kElements + columns - 1) / std::max<int64_t>(columns, 1);
    rows_each = std::max({int64_t{1}, (rows + kMost - 1) / kMost, std::min(enough, rows)});
    count = (rows + rows_each - 1) / rows_each;
  }
  Range range(int64_t strip) const { return {strip * rows_each, std::min(rows, (strip + 1) * rows_each)}; }
};

// Memory of prepare: per strip its sums of w^2 and of U^2, and its part of each column's sum of g'^2.
struct StripSums {
  double *weights, *updates;  // (count)
  float* columns;             // (count, C); of a matrix

  StripSums(const Strips& strips, bool is_matrix, Arena& scratch)
      : weights(static_cast<double*>(scratch.alloc(DType::i64, {strips.count}).data)),
        updates(static_cast<double*>(scratch.alloc(DType::i64, {strips.count}).data)),
        columns(static_cast<float*>(
            scratch.alloc(DType::f32, {is_matrix ? strips.count : 0, strips.columns}).data)) {}
};

double in_order(const double* sums, int64_t count) {
  double total = 0;
  for (int64_t i = 0; i < count; ++i) total += sums[i];
  return total;
}

// A row's sum of squared gradients; adds each to its column's.
float add_squares(float* columns, const float* g, float grad_scale, int64_t C) {
  float sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t c = 0; c < C; ++c) {
    const float gradient = g[c] * grad_scale;
    sum += gradient * gradient;
    columns[c] += gradient * gradient;
  }
  return sum;
}

// Of w^2 over a range of elements.
double weight_squares(const OptimParam& p, int64_t begin, int64_t end) {
  float piece[kPieceElements];
  double total = 0;
  for (int64_t i = begin; i < end; i += kPieceElements) {
    const int64_t n = std::min(kPieceElements, end - i);
    total += sum_of_squares(load_weights(p, i, n, piece), n);
  }
  return total;
}

// row and col one step on, and the sums of w^2.
void move_matrix_state(const ParamState& p, const RuleStep& step, float b, const Strips& strips,
                       const StripSums& sums) {
  const int64_t C = strips.columns;
  const float* g = p.param.g.as<float>();
  float *row = p.state[0].as<float>(), *col = p.state[1].as<float>();
  parallel_for(strips.count, 1, [&](int64_t begin, int64_t end) {
    for (int64_t s = begin; s < end; ++s) {
      const Range range = strips.range(s);
      float* columns = sums.columns + s * C;
      std::fill(columns, columns + C, 0.0f);
      for (int64_t r = range.begin; r < range.end; ++r) {
        const float mean = add_squares(columns, g + r * C, step.grad_scale, C) / static_cast<float>(C);
        row[r] += (mean - row[r]) * b;
      }
      sums.weights[s] = weight_squares(p.param, range.begin * C, range.end * C);
    }
  });
  const float per_row = 1 / static_cast<float>(strips.rows);
  parallel_for(C, 1024, [&](int64_t begin, int64_t end) {
    for (int64_t c = begin; c < end; ++c) {
      float sum = 0;
      for (int64_t s = 0; s < strips.count; ++s) sum += sums.columns[s * C + c];
      col[c] += (sum * per_row - col[c]) * b;
    }
  });
}

void move_vector_state(const ParamState& p, const RuleStep& step, float b, const Strips& strips,
                       const StripSums& sums) {
  const float* g = p.param.g.as<float>();
  float* v = p.state[0].as<float>();
  parallel_for(strips.count, 1, [&](int64_t begin, int64_t end) {
    for (int64_t s = begin; s < end; ++s) {
      const Range range = strips.range(s);
#pragma omp simd
      for (int64_t i = range.begin; i < range.end; ++i) {
        const float gradient = g[i] * step.grad_scale;
        v[i] += (gradient * gradient - v[i]) * b;
      }
      sums.weights[s] = weight_squares(p.param, range.begin, range.end);
    }
  });
}

// U of elements [i, i + n) of a parameter: body(j, u) with j from 0.
template <typename Body>
void for_each_update(const ParamState& p, int64_t i, int64_t n, float grad_scale, float divisor,
                     float smallest, Body&& body) {
  const float* g = p.param.g.as<float>() + i;
  if (!p.param.is_matrix()) {
    const float* v = p.state[0].as<float>() + i;
#pragma omp simd
    for (int64_t j = 0; j < n; ++j) body(j, g[j] * grad_scale / std::sqrt(std::max(v[j], smallest)));
    return;
  }
  const int64_t C = p.param.shape[1];
  const float* col = p.state[1].as<float>();
  for (int64_t j = 0; j < n;) {
    const int64_t r = (i + j) / C, c = (i + j) % C, end = std::min(n, j + C - c);
    const float row = p.state[0].as<float>()[r] / divisor;
    const int64_t shift = c - j;
#pragma omp simd
    for (int64_t k = j; k < end; ++k)
      body(k, g[k] * grad_scale / std::sqrt(std::max(row * col[k + shift], smallest)));
    j = end;
  }
}

}  // namespace

std::vector<StateSpec> Adafactor::state(const OptimParam& param) const {
  if (!param.is_matrix()) return {{"v", DType::f32, {param.elements()}}};
  return {{"row", DType::f32, {param.shape[0]}}, {"col", DType::f32, {param.shape[1]}}};
}

size_t Adafactor::scratch_bytes(const OptimParam& param) const {
  Arena arena("adafactor plan");
  const StripSums sums(Strips(param.shape), param.is_matrix(), arena);
  return arena.peak_bytes();
}

Prepared Adafactor::prepare(const ParamState& p, const RuleStep& step, Arena& scratch,
                            Stream& /*stream*/) const {
  const Strips strips(p.param.shape);
  const StripSums sums(strips, p.param.is_matrix(), scratch);
  const double t = static_cast<double>(step.t), n = static_cast<double>(p.param.elements());
  const auto b = static_cast<float>(std::pow(t, kDecayExponent));
  Prepared prepared;
  if (p.param.is_matrix()) {
    move_matrix_state(p, step, b, strips, sums);
    double mean = 0;
    for (int64_t r = 0; r < strips.rows; ++r) mean += static_cast<double>(p.state[0].as<float>()[r]);
    prepared.divisor = std::max(mean / static_cast<double>(strips.rows), params_.eps);
  } else {
    move_vector_state(p, step, b, strips, sums);
  }
  const auto smallest = static_cast<float>(params_.eps * params_.eps);
  parallel_for(strips.count, 1, [&](int64_t begin, int64_t end) {
    for (int64_t s = begin; s < end; ++s) {
      const int64_t first = strips.range(s).begin * strips.columns,
                    last = strips.range(s).end * strips.columns;
      double total = 0;
      for (int64_t i = first; i < last; i += kPieceElements) {
        const int64_t size = std::min(kPieceElements, last - i);
        float u[kPieceElements];
        for_each_update(p, i, size, step.grad_scale, static_cast<float>(prepared.divisor), smallest,
                        [&](int64_t j, float update) { u[j] = update; });
        total += sum_of_squares(u, size);
      }
      sums.updates[s] = total;
    }
  });
  const double weight_rms = std::sqrt(in_order(sums.weights, strips.count) / n);
  const double update_rms = std::sqrt(in_order(sums.updates, strips.count) / n);
  const double alpha = params_.has_relative_step
                           ? std::max(kSmallestScale, weight_rms) * std::min(step.lr, 1 / std::sqrt(t))
                           : step.lr;
  prepared.factor = alpha / std::max(1.0, update_rms / params_.update_clip);
  return prepared;
}

RangeTotals Adafactor::update(const ParamState& p, Range range, const RuleStep& step,
                              const Prepared& prepared) const {
  const auto decay = static_cast<float>(1 - step.lr * step.weight_decay);
  const auto factor = static_cast<float>(prepared.factor), divisor = static_cast<float>(prepared.divisor);
  const auto smallest = static_cast<float>(params_.eps * params_.eps);
  return for_each_piece(p, range, step, [&](float* w, const float* /*g*/, int64_t i, int64_t n) {
    for_each_update(p, i, n, step.grad_scale, divisor, smallest,
                    [&](int64_t j, float update) { w[j] = w[j] * decay - factor * update; });
  });
}

}  // namespace ingot
