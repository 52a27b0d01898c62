#include "ingot/optim/rules/adafactor.h"

#include <cmath>

#include "ingot/ops/cuda/cuda_elementwise.h"
#include "ingot/ops/row_sum.h"
#include "ingot/optim/cuda_update.h"
#include "ingot/optim/cuda_weight_pass.h"
#include "ingot/optim/rules/cuda_mean_squares.h"

namespace ingot::cuda {
namespace {

// Numbers on the device, computed from the whole parameter, that the update of every element uses.
struct Factors {
  float* divisor;  // max(mean(row), eps)
  float* rate;     // alpha / max(1, RMS(U) / update_clip)
};

// mean = lerp(mean, fresh, b)
struct MoveMeans {
  float* means;
  const float* fresh;
  StepFactor factor;
  float b;

  __device__ void operator()(int64_t i) const {
    if (!factor.leaves_out()) means[i] += (fresh[i] - means[i]) * b;
  }
};

struct MoveVector {
  float* v;
  const float* g;
  StepFactor factor;
  float b;

  __device__ void operator()(int64_t i) const {
    if (factor.leaves_out()) return;
    const float gradient = g[i] * factor.value();
    v[i] += (gradient * gradient - v[i]) * b;
  }
};

__global__ void __launch_bounds__(kSquareParts)
    divisor_of_rows(float* divisor, const float* row, int64_t R, float eps) {
  float sum = 0;
  for (int64_t r = threadIdx.x; r < R; r += kSquareParts) sum += row[r];
  sum = group_sum<kSquareParts>(sum);
  if (threadIdx.x == 0) *divisor = std::fmax(sum / static_cast<float>(R), eps);
}

// Computes U of W elements, which lie in one row.
struct Updates {
  const float *row, *col;  // row and col of a matrix; for a vector v and null
  Factors factors;
  float smallest;
  uint32_t C;

  template <int W>
  __device__ __forceinline__ Floats<W> at(int64_t i, const Floats<W>& g, float factor) const {
    Floats<W> u, v;
    if (col) {
      const RowColumn place(i, C);
      const float of_row = row[place.row] / *factors.divisor;
      v = load<W>(col + place.column);
#pragma unroll
      for (int k = 0; k < W; ++k) v.at[k] *= of_row;
    } else {
      v = load<W>(row + i);
    }
#pragma unroll
    for (int k = 0; k < W; ++k) u.at[k] = g.at[k] * factor / std::sqrt(std::fmax(v.at[k], smallest));
    return u;
  }
};

// parts (kSquareParts, 2) = the sums of squares of weights and of updates. Reads weights and gradients once.
template <int W>
__global__ void __launch_bounds__(kThreads) add_squares(float* parts, weights::Pass a, Updates updates) {
  float of_weights = 0, of_updates = 0;
  for (int64_t i = (int64_t{blockIdx.x} * kThreads + threadIdx.x) * W; i < a.n;
       i += int64_t{gridDim.x} * kThreads * W) {
    const Floats<W> w = weights::read_weights<W>(a, i);
    const Floats<W> u = updates.at<W>(i, load<W>(static_cast<const float*>(a.g + i)), a.factor.value());
#pragma unroll
    for (int k = 0; k < W; ++k) {
      of_weights += w.at[k] * w.at[k];
      of_updates += u.at[k] * u.at[k];
    }
  }
  of_weights = group_sum<kThreads>(of_weights);
  of_updates = group_sum<kThreads>(of_updates);
  if (threadIdx.x != 0) return;
  parts[2 * blockIdx.x] = of_weights;
  parts[2 * blockIdx.x + 1] = of_updates;
}

// The step size: lr, or if it is relative, largest_part times the root mean square of the weights.
struct StepSize {
  float lr, largest_part, update_clip;
  bool is_relative;
  float n;
};

__global__ void __launch_bounds__(kSquareParts)
    make_rate(float* rate, const float* parts, int count, StepSize size) {
  const int i = static_cast<int>(threadIdx.x);
  const float of_weights = group_sum<kSquareParts>(i < count ? parts[2 * i] : 0.0f);
  const float of_updates = group_sum<kSquareParts>(i < count ? parts[2 * i + 1] : 0.0f);
  if (i != 0) return;
  const float weight_rms = std::sqrt(of_weights / size.n), update_rms = std::sqrt(of_updates / size.n);
  const float alpha =
      size.is_relative
          ? std::fmax(static_cast<float>(Adafactor::kSmallestScale), weight_rms) * size.largest_part
          : size.lr;
  *rate = alpha / std::fmax(1.0f, update_rms / size.update_clip);
}

struct Move {
  static constexpr bool kReadsGradient = true;
  Updates updates;
  float decay;

  template <int W>
  __device__ __forceinline__ void at(const weights::Pass& a, int64_t i, Floats<W>& w,
                                     const Floats<W>& g) const {
    const Floats<W> u = updates.at<W>(i, g, a.factor.value());
    const float rate = *updates.factors.rate;
#pragma unroll
    for (int k = 0; k < W; ++k) w.at[k] = w.at[k] * decay - rate * u.at[k];
  }
};

struct Scratch {
  Tensor factors;       // (2) f32: divisor and rate
  Tensor parts;         // (kSquareParts, 2) f32
  Tensor rows, strips;  // (max(R, C)) and (kRowParts, C) f32; for a matrix

  Scratch(const OptimParam& param, Arena& arena)
      : factors(arena.alloc(DType::f32, {2})), parts(arena.alloc(DType::f32, {kSquareParts, 2})) {
    if (!param.is_matrix()) return;
    rows = arena.alloc(DType::f32, {std::max(param.shape[0], param.shape[1])});
    strips = arena.alloc(DType::f32, {kRowParts, param.shape[1]});
  }
  Factors device_factors() const { return {factors.as<float>(), factors.as<float>() + 1}; }
};

// Updates row and col, or v, and computes the divisor.
void move_state(const ParamState& p, const Adafactor::Options& options, const RuleStep& step,
                const Scratch& scratch, Stream& stream) {
  const char* op = "update_adafactor";
  const auto b = static_cast<float>(std::pow(static_cast<double>(step.t), Adafactor::kDecayExponent));
  const OptimParam& param = p.param;
  const StepFactor factor = step_factor(step.grad_scale, step.factor);
  if (!param.is_matrix())
    return launch_elementwise<1>(param.elements(), op, stream,
                                 MoveVector{p.state[0].as<float>(), param.g.as<float>(), factor, b});
  const int64_t R = param.shape[0], C = param.shape[1];
  const Tensor g = param.g.reshape({R, C}), rows = scratch.rows.rows(0, R), columns = scratch.rows.rows(0, C);
  row_mean_squares(rows, g, step.grad_scale, step.factor, stream);
  launch_elementwise<1>(R, op, stream, MoveMeans{p.state[0].as<float>(), rows.as<float>(), factor, b});
  column_mean_squares(columns, g, step.grad_scale, step.factor, scratch.strips, stream);
  launch_elementwise<1>(C, op, stream, MoveMeans{p.state[1].as<float>(), columns.as<float>(), factor, b});
  launch({stream, op, dim3(1), dim3(kSquareParts)}, divisor_of_rows, scratch.device_factors().divisor,
         static_cast<const float*>(p.state[0].as<float>()), R, static_cast<float>(options.eps));
}

// Makes one update of a parameter, as on the CPU.
void update_adafactor(const ParamState& p, const Adafactor::Options& options, const RuleStep& step,
                      const Tensor& totals, Arena& scratch, Stream& stream) {
  const char* op = "update_adafactor";
  const OptimParam& param = p.param;
  const int64_t n = param.elements(), C = param.is_matrix() ? param.shape[1] : 1;
  const Scratch own(param, scratch);
  move_state(p, options, step, own, stream);
  const Updates updates{p.state[0].as<float>(), param.is_matrix() ? p.state[1].as<float>() : nullptr,
                        own.device_factors(), static_cast<float>(options.eps * options.eps),
                        row_length(n / C, C, op)};
  const weights::Pass pass = weights::make_pass(p, step, totals);
  const bool is_wide = weights::is_wide(p) && (!param.is_matrix() || C % 4 == 0);
  with_width<float>(is_wide, [&](auto width) {
    constexpr int W = decltype(width)::value;
    const unsigned blocks = std::min<unsigned>(blocks_for(n, int64_t{kThreads} * W), kSquareParts);
    launch({stream, op, dim3(blocks), dim3(kThreads)}, add_squares<W>, own.parts.as<float>(), pass, updates);
    const double largest_part = std::min(step.lr, 1 / std::sqrt(static_cast<double>(step.t)));
    const StepSize size{static_cast<float>(step.lr), static_cast<float>(largest_part),
                        static_cast<float>(options.update_clip), options.relative_step,
                        static_cast<float>(n)};
    launch({stream, op, dim3(1), dim3(kSquareParts)}, make_rate, own.device_factors().rate,
           static_cast<const float*>(own.parts.as<float>()), static_cast<int>(blocks), size);
  });
  const Move move{updates, static_cast<float>(1 - step.lr * step.weight_decay)};
  weights::launch_update(pass, is_wide, move, totals, op, stream);
}

}  // namespace
}  // namespace ingot::cuda

namespace ingot {

void Adafactor::update_on_device(const ParamState& p, const Options& options, const RuleStep& step,
                                 const Tensor& totals, Arena& scratch, Stream& stream) {
  cuda::update_adafactor(p, options, step, totals, scratch, stream);
}

size_t Adafactor::device_scratch_bytes(const OptimParam& param, const Options& /*options*/) {
  Arena plan("adafactor plan", Memory::kDevice);
  const cuda::Scratch own(param, plan);
  return plan.peak_bytes();
}

}  // namespace ingot
