#include "ingot/optim/rules/adafactor.h"

#include <cmath>

#include "ingot/core/copy.h"
#include "ingot/core/cuda/cuda_elementwise.h"
#include "ingot/ops/row_sum.h"
#include "ingot/optim/cuda_shard_places.h"
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

// mean = lerp(mean, sum / count, b)
struct MoveMeans {
  float* means;
  const float* sums;
  StepFactor factor;
  float count, b;

  __device__ void operator()(int64_t i) const {
    if (!factor.leaves_out()) means[i] += (sums[i] / count - means[i]) * b;
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
  ShardPlaces places;

  template <int W>
  __device__ __forceinline__ Floats<W> at(int64_t i, const Floats<W>& g, float factor) const {
    Floats<W> u, v;
    if (col) {
      const RowColumn place = places.of(i);
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

// The weights of a pass, and their updates U, as the values whose squares are summed.
struct Weights {
  weights::Pass a;
  template <int W>
  __device__ __forceinline__ Floats<W> at(int64_t i) const {
    return weights::read_weights<W>(a, i);
  }
};
struct UpdatesOf {
  weights::Pass a;
  Updates updates;
  template <int W>
  __device__ __forceinline__ Floats<W> at(int64_t i) const {
    return updates.at<W>(i, load<W>(static_cast<const float*>(a.g + i)), a.factor.value());
  }
};

// parts (gridDim.x) = sums of the squares of n values.
template <int W, typename Values>
__global__ void __launch_bounds__(kThreads) parts_of_values(float* parts, int64_t n, Values values) {
  float sum = 0;
  for (int64_t i = (int64_t{blockIdx.x} * kThreads + threadIdx.x) * W; i < n;
       i += int64_t{gridDim.x} * kThreads * W) {
    const Floats<W> v = values.template at<W>(i);
#pragma unroll
    for (int k = 0; k < W; ++k) sum += v.at[k] * v.at[k];
  }
  sum = group_sum<kThreads>(sum);
  if (threadIdx.x == 0) parts[blockIdx.x] = sum;
}

__global__ void __launch_bounds__(kSquareParts)
    add_square_parts(float* total, const float* parts, int count) {
  const int i = static_cast<int>(threadIdx.x);
  const float sum = group_sum<kSquareParts>(i < count ? parts[i] : 0.0f);
  if (i == 0) *total = sum;
}

// The step size: lr, or if it is relative, largest_part times the root mean square of the weights.
struct StepSize {
  float lr, largest_part, update_clip;
  bool is_relative;
  float n;
};

// of_weights and of_updates: the sums of w^2 and U^2 over the whole parameter.
__global__ void __launch_bounds__(1)
    make_rate(float* rate, const float* of_weights, const float* of_updates, StepSize size) {
  const float weight_rms = std::sqrt(*of_weights / size.n), update_rms = std::sqrt(*of_updates / size.n);
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

// Returns the number of sums that Adafactor::reduce fills first: one per row, one per column, and one
// for the weights. A vector has only the last.
int64_t first_reductions(const OptimParam& param) {
  return 1 + (param.is_matrix() ? param.whole()[0] + param.whole()[1] : 0);
}

struct Scratch {
  Tensor factors;         // (2) f32: divisor and rate
  Tensor parts;           // (kSquareParts) f32
  Tensor strips;          // (kRowParts, columns of the widest rectangle) f32; for a matrix
  Reductions reductions;  // They are local: the parameter is whole on this rank.

  Scratch(const OptimParam& param, Arena& arena)
      : factors(arena.alloc(DType::f32, {2})), parts(arena.alloc(DType::f32, {kSquareParts})) {
    int64_t widest = 0;
    for_each_rect(param, [&](const Rect& rect, int64_t) { widest = std::max(widest, rect.columns); });
    if (param.is_matrix()) strips = arena.alloc(DType::f32, {kRowParts, widest});
    if (!param.is_shard())
      reductions = {arena.alloc(DType::f32, {first_reductions(param)}), arena.alloc(DType::f32, {1})};
  }
  Factors device_factors() const { return {factors.as<float>(), factors.as<float>() + 1}; }
};

// One update of a parameter or shard.
class Update {
 public:
  Update(const ParamUpdate& update, const Adafactor::Options& options, const Scratch& scratch, Stream& stream)
      : p_(update.p),
        param_(update.p.param),
        options_(options),
        step_(update.step),
        scratch_(scratch),
        stream_(stream) {}

  void reduce(const Reductions& reductions, int order) const {
    if (order == 0) return reduce_squares(reductions[0]);
    if (param_.is_matrix()) move_means(reductions[0]);
    make_divisor();
    if (param_.is_added) sum_squares_of_values(reductions[1], UpdatesOf{pass({}), updates()}, is_wide());
  }
  void move(const Reductions& reductions, const Tensor& totals) const {
    make_divisor();
    const Tensor &first = reductions[0], &second = reductions[1];
    const double largest_part = std::min(step_.lr, 1 / std::sqrt(static_cast<double>(step_.t)));
    const StepSize size{static_cast<float>(step_.lr), static_cast<float>(largest_part),
                        static_cast<float>(options_.update_clip), options_.relative_step,
                        static_cast<float>(param_.whole_elements())};
    launch({stream_, kOp, dim3(1), dim3(1)}, make_rate, scratch_.device_factors().rate,
           static_cast<const float*>(first.as<float>() + first.elements() - 1),
           static_cast<const float*>(second.as<float>()), size);
    const Move rule{updates(), static_cast<float>(1 - step_.lr * step_.weight_decay)};
    weights::launch_update(pass(totals), is_wide(), rule, totals, kOp, stream_);
  }

 private:
  static constexpr const char* kOp = "update_adafactor";

  // Sums g'^2 by row and by column, and w^2; moves the state of a vector.
  void reduce_squares(const Tensor& sums) const {
    if (!param_.is_matrix())
      launch_elementwise<1>(param_.elements(), kOp, stream_,
                            MoveVector{p_.state[0].as<float>(), param_.g.as<float>(), factor(), decay()});
    if (!param_.is_added) return;
    sum_squares_of_values(sums.rows(sums.elements() - 1, sums.elements()), Weights{pass({})},
                          weights::is_wide(p_));
    if (!param_.is_matrix()) return;
    const int64_t R = param_.whole()[0];
    for_each_rect(param_, [&](const Rect& rect, int64_t begin) {
      if (begin >= param_.added_elements()) return;  // copies are whole rectangles
      const Tensor g = param_.g.rows(begin, begin + rect.elements()).reshape({rect.rows, rect.columns});
      add_row_squares(sums.rows(rect.row, rect.row + rect.rows), g, step_.grad_scale, step_.factor, stream_);
      add_column_squares(sums.rows(R + rect.column, R + rect.column + rect.columns), g, step_.grad_scale,
                         step_.factor, scratch_.strips, stream_);
    });
  }
  // Moves row and col to the means of a step, whose sums are given.
  void move_means(const Tensor& sums) const {
    const int64_t R = param_.whole()[0], C = param_.whole()[1];
    const float* from = sums.as<float>();
    launch_elementwise<1>(R, kOp, stream_,
                          MoveMeans{p_.state[0].as<float>(), from, factor(), static_cast<float>(C), decay()});
    launch_elementwise<1>(
        C, kOp, stream_,
        MoveMeans{p_.state[1].as<float>(), from + R, factor(), static_cast<float>(R), decay()});
  }
  void make_divisor() const {
    if (!param_.is_matrix()) return;
    launch({stream_, kOp, dim3(1), dim3(kSquareParts)}, divisor_of_rows, scratch_.device_factors().divisor,
           static_cast<const float*>(p_.state[0].as<float>()), param_.whole()[0],
           static_cast<float>(options_.eps));
  }
  template <typename Values>
  void sum_squares_of_values(const Tensor& total, const Values& values, bool is_wide) const {
    const int64_t n = param_.added_elements();
    with_width<float>(is_wide && n % 4 == 0, [&](auto width) {
      constexpr int W = decltype(width)::value;
      const unsigned blocks = std::min<unsigned>(blocks_for(n, int64_t{kThreads} * W), kSquareParts);
      launch({stream_, kOp, dim3(blocks), dim3(kThreads)}, parts_of_values<W, Values>,
             scratch_.parts.as<float>(), n, values);
      launch({stream_, kOp, dim3(1), dim3(kSquareParts)}, add_square_parts, total.as<float>(),
             static_cast<const float*>(scratch_.parts.as<float>()), static_cast<int>(blocks));
    });
  }

  Updates updates() const {
    return {p_.state[0].as<float>(), param_.is_matrix() ? p_.state[1].as<float>() : nullptr,
            scratch_.device_factors(), static_cast<float>(options_.eps * options_.eps),
            param_.is_matrix() ? places_of(param_, kOp) : ShardPlaces{}};
  }
  bool is_wide() const {
    return weights::is_wide(p_) && (!param_.is_matrix() || places_of(param_, kOp).is_wide);
  }
  weights::Pass pass(const Tensor& totals) const { return weights::make_pass(p_, step_, totals); }
  StepFactor factor() const { return step_factor(step_.grad_scale, step_.factor); }
  float decay() const {
    return static_cast<float>(std::pow(static_cast<double>(step_.t), Adafactor::kDecayExponent));
  }

  const ParamState& p_;
  const OptimParam& param_;
  const Adafactor::Options& options_;
  const RuleStep& step_;
  const Scratch& scratch_;
  Stream& stream_;
};

class CudaAdafactor final : public Adafactor {
 public:
  using Adafactor::Adafactor;

  size_t scratch_bytes(const OptimParam& param) const override {
    Arena plan("adafactor plan", Memory::kDevice);
    const Scratch own(param, plan);
    return plan.peak_bytes();
  }
  void reduce(const ParamUpdate& update, int order, Arena& scratch, Stream& stream) const override {
    const Scratch own(update.p.param, scratch);
    Update(update, options_, own, stream).reduce(update.reductions, order);
  }
  // The reductions of a whole parameter are made here.
  void update(std::span<const ParamUpdate> updates, Arena& scratch, Stream& stream) const override {
    const ParamUpdate& one = updates.front();
    const Scratch own(one.p.param, scratch);
    const Update update(one, options_, own, stream);
    if (one.p.param.is_shard()) return update.move(one.reductions, one.device_totals);
    for (const Tensor& sums : own.reductions) fill_zero(sums, stream);
    for (const int order : {0, 1}) update.reduce(own.reductions, order);
    update.move(own.reductions, one.device_totals);
  }
};

}  // namespace
}  // namespace ingot::cuda

namespace ingot {

std::unique_ptr<UpdateRule> Adafactor::make_on_device(const Options& options) {
  return std::make_unique<cuda::CudaAdafactor>(options);
}

}  // namespace ingot
