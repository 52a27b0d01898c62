#include "ingot/optim/rules/adafactor.h"

#include <algorithm>
#include <cmath>

#include "ingot/core/parallel.h"
#include "ingot/optim/shard_rows.h"
#include "ingot/optim/sum_of_squares.h"
#include "ingot/optim/weight_pass.h"

namespace ingot {
namespace {

// Divides the rows into strips, whose number depends only on the shape. A vector has one element per row.
struct Strips {
  static constexpr int64_t kMax = 32, kElements = 1 << 14;
  int64_t rows, columns, rows_each, count;

  explicit Strips(const Shape& shape) : rows(shape[0]), columns(shape.rank() == 2 ? shape[1] : 1) {
    const int64_t enough = (kElements + columns - 1) / std::max<int64_t>(columns, 1);
    rows_each = std::max({int64_t{1}, (rows + kMax - 1) / kMax, std::min(enough, rows)});
    count = (rows + rows_each - 1) / rows_each;
  }
  Range range(int64_t strip) const { return {strip * rows_each, std::min(rows, (strip + 1) * rows_each)}; }
};

// Scratch of prepare: each strip's sums of w^2 and U^2, and its summands of every column's sum of g'^2.
struct StripSums {
  double *weights, *updates;  // (count)
  float* columns;             // (count, C); for a matrix

  StripSums(const Strips& strips, bool is_matrix, Arena& scratch)
      : weights(scratch.alloc_as<double>(strips.count)),
        updates(scratch.alloc_as<double>(strips.count)),
        columns(scratch.alloc_as<float>(is_matrix ? strips.count * strips.columns : 0)) {}
};

double in_order(const double* sums, int64_t count) {
  double total = 0;
  for (int64_t i = 0; i < count; ++i) total += sums[i];
  return total;
}

// Returns a row's sum of squared gradients, and adds each square to its column's sum.
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

// Sum of w^2 over a range of elements.
double weight_squares(const OptimParam& p, int64_t begin, int64_t end) {
  float converted[kRunElements];
  double total = 0;
  for (int64_t i = begin; i < end; i += kRunElements) {
    const int64_t n = std::min(kRunElements, end - i);
    total += sum_of_squares(load_weights(p, i, n, converted), n);
  }
  return total;
}

// Updates row and col, and sums w^2 per strip.
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

// Calls body(j, u) for the update U of elements i + j, j < n, of a parameter or shard.
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
  const float *rows = p.state[0].as<float>(), *columns = p.state[1].as<float>();
  for_each_run(p.param, i, n, [&](int64_t begin, int64_t r, int64_t c, int64_t count) {
    const float row = rows[r] / divisor;
    const float *col = columns + c - begin, *gradient = g;
#pragma omp simd
    for (int64_t j = begin; j < begin + count; ++j)
      body(j, gradient[j] * grad_scale / std::sqrt(std::max(row * col[j], smallest)));
  });
}

// Sum of U^2 over elements [first, last).
double update_squares(const ParamState& p, int64_t first, int64_t last, float grad_scale, float divisor,
                      float smallest) {
  double total = 0;
  for (int64_t i = first; i < last; i += kRunElements) {
    const int64_t size = std::min(kRunElements, last - i);
    float u[kRunElements];
    for_each_update(p, i, size, grad_scale, divisor, smallest,
                    [&](int64_t j, float update) { u[j] = update; });
    total += sum_of_squares(u, size);
  }
  return total;
}

float decay_of(const RuleStep& step) {
  return static_cast<float>(std::pow(static_cast<double>(step.t), Adafactor::kDecayExponent));
}

void move_vector(const ParamState& p, const RuleStep& step, Range range) {
  const float *g = p.param.g.as<float>(), b = decay_of(step);
  float* v = p.state[0].as<float>();
#pragma omp simd
  for (int64_t i = range.begin; i < range.end; ++i) {
    const float gradient = g[i] * step.grad_scale;
    v[i] += (gradient * gradient - v[i]) * b;
  }
}

void move_vector_state(const ParamState& p, const RuleStep& step, const Strips& strips,
                       const StripSums& sums) {
  parallel_for(strips.count, 1, [&](int64_t begin, int64_t end) {
    for (int64_t s = begin; s < end; ++s) {
      const Range range = strips.range(s);
      move_vector(p, step, range);
      sums.weights[s] = weight_squares(p.param, range.begin, range.end);
    }
  });
}

// Adds the squared gradients of a rectangle to the sums of its rows and columns; g is its first gradient.
void add_rect(float* rows, float* columns, const Rect& rect, const float* g, float grad_scale) {
  parallel_for(rect.rows, 16, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      float sum = 0;
#pragma omp simd reduction(+ : sum)
      for (int64_t c = 0; c < rect.columns; ++c) {
        const float gradient = g[r * rect.columns + c] * grad_scale;
        sum += gradient * gradient;
      }
      rows[rect.row + r] += sum;
    }
  });
  parallel_for(rect.columns, 64, [&](int64_t begin, int64_t end) {
    for (int64_t r = 0; r < rect.rows; ++r)
#pragma omp simd
      for (int64_t c = begin; c < end; ++c) {
        const float gradient = g[r * rect.columns + c] * grad_scale;
        columns[rect.column + c] += gradient * gradient;
      }
  });
}

// Updates row or col from its sums; each sum has `count` elements.
void move_means(const Tensor& means, const float* sums, int64_t count, float b) {
  float* mean = means.as<float>();
  for (int64_t i = 0; i < means.elements(); ++i)
    mean[i] += (sums[i] / static_cast<float>(count) - mean[i]) * b;
}

}  // namespace

std::vector<StateSpec> Adafactor::state(const OptimParam& param) const {
  if (!param.is_matrix()) return {{"v", DType::f32, {param.elements()}}};
  return {{"row", DType::f32, {param.whole()[0]}, StateScope::kWhole},
          {"col", DType::f32, {param.whole()[1]}, StateScope::kWhole}};
}

RuleNeeds Adafactor::needs(const OptimParam& param) const {
  if (param.is_shard())
    return {.is_whole = true,
            .shared = {1 + (param.is_matrix() ? param.logical[0] + param.logical[1] : 0), 1}};
  return {.is_whole = true};
}

size_t Adafactor::scratch_bytes(const OptimParam& param) const {
  if (param.is_shard()) return 0;
  Arena arena("adafactor plan");
  const StripSums sums(Strips(param.shape), param.is_matrix(), arena);
  return arena.peak_bytes();
}

double Adafactor::divisor(const ParamState& p) const {
  if (!p.param.is_matrix()) return 1;
  const int64_t R = p.param.whole()[0];
  double sum = 0;
  for (int64_t r = 0; r < R; ++r) sum += static_cast<double>(p.state[0].as<float>()[r]);
  return std::max(sum / static_cast<double>(R), options_.eps);
}

double Adafactor::rate(const OptimParam& param, const RuleStep& step, double weights, double updates) const {
  const double t = static_cast<double>(step.t), n = static_cast<double>(param.whole_elements());
  const double weight_rms = std::sqrt(weights / n), update_rms = std::sqrt(updates / n);
  const double alpha = options_.relative_step
                           ? std::max(kSmallestScale, weight_rms) * std::min(step.lr, 1 / std::sqrt(t))
                           : step.lr;
  return alpha / std::max(1.0, update_rms / options_.update_clip);
}

void Adafactor::reduce(const ParamUpdate& update, int order, Arena& /*scratch*/, Stream& /*stream*/) const {
  const ParamState& p = update.p;
  const RuleStep& step = update.step;
  const Reductions& reductions = update.reductions;
  const OptimParam& param = p.param;
  const int64_t n = param.elements(), R = param.logical[0], C = param.columns();
  float* first = reductions[0].as<float>();
  float& of_weights = first[reductions[0].elements() - 1];
  if (order == 1) {
    if (param.is_matrix()) {
      move_means(p.state[0], first, C, decay_of(step));
      move_means(p.state[1], first + R, R, decay_of(step));
    }
    if (param.is_added)
      reductions[1].as<float>()[0] = static_cast<float>(update_squares(
          p, 0, param.added_elements(), step.grad_scale, static_cast<float>(divisor(p)), smallest()));
    return;
  }
  if (!param.is_matrix()) move_vector(p, step, {0, n});
  if (!param.is_added) return;
  of_weights = static_cast<float>(weight_squares(param, 0, param.added_elements()));
  if (!param.is_matrix()) return;
  int64_t here = 0;  // copies are whole rectangles
  for (const Rect& rect : param.rects) {
    if (here >= param.added_elements()) break;
    add_rect(first, first + R, rect, param.g.as<float>() + here, step.grad_scale);
    here += rect.elements();
  }
}

Adafactor::Factors Adafactor::prepare(const ParamUpdate& update, Arena& scratch) const {
  const ParamState& p = update.p;
  const RuleStep& step = update.step;
  if (p.param.is_shard()) {
    const Tensor &first = update.reductions[0], &second = update.reductions[1];
    return {rate(p.param, step, static_cast<double>(first.as<float>()[first.elements() - 1]),
                 static_cast<double>(second.as<float>()[0])),
            divisor(p)};
  }
  const Strips strips(p.param.shape);
  const StripSums sums(strips, p.param.is_matrix(), scratch);
  if (p.param.is_matrix())
    move_matrix_state(p, step, decay_of(step), strips, sums);
  else
    move_vector_state(p, step, strips, sums);
  const double by = divisor(p);
  parallel_for(strips.count, 1, [&](int64_t begin, int64_t end) {
    for (int64_t s = begin; s < end; ++s)
      sums.updates[s] =
          update_squares(p, strips.range(s).begin * strips.columns, strips.range(s).end * strips.columns,
                         step.grad_scale, static_cast<float>(by), smallest());
  });
  return {rate(p.param, step, in_order(sums.weights, strips.count), in_order(sums.updates, strips.count)),
          by};
}

void Adafactor::update(std::span<const ParamUpdate> updates, Arena& scratch, Stream& /*stream*/) const {
  const Factors factors = prepare(updates.front(), scratch);
  update_ranges(updates, [&](const ParamUpdate& u, Range range) {
    const auto decay = static_cast<float>(1 - u.step.lr * u.step.weight_decay);
    const auto rate = static_cast<float>(factors.rate), divisor = static_cast<float>(factors.divisor);
    return for_each_run(u.p, range, u.step, [&](float* w, const float* /*g*/, int64_t i, int64_t n) {
      for_each_update(u.p, i, n, u.step.grad_scale, divisor, smallest(),
                      [&](int64_t j, float update) { w[j] = w[j] * decay - rate * update; });
    });
  });
}

}  // namespace ingot
