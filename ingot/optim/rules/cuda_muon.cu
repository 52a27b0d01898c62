#include "ingot/optim/rules/cuda_muon.h"

#include "ingot/core/cuda/cuda_elementwise.h"
#include "ingot/ops/row_sum.h"
#include "ingot/optim/cuda_update.h"
#include "ingot/optim/cuda_weight_pass.h"
#include "ingot/optim/rules/cuda_mean_squares.h"
#include "ingot/optim/rules/muon_parts.h"

namespace ingot::cuda {
namespace {

constexpr int kLaneThreads = 1024;

template <int W>
struct MoveMomentum {
  float *m, *u;
  const float* g;
  StepFactor factor;
  float mu, of_m;

  __device__ void operator()(int64_t i) const {
    if (factor.leaves_out()) return;
    const float scale = factor.value();
    const Floats<W> gradients = load<W>(g + i);
    Floats<W> moments = load<W>(static_cast<const float*>(m + i)), direction;
#pragma unroll
    for (int k = 0; k < W; ++k) {
      const float gradient = gradients.at[k] * scale;
      moments.at[k] += (gradient - moments.at[k]) * (1 - mu);
      direction.at[k] = gradient + (moments.at[k] - gradient) * of_m;
    }
    store(m + i, moments);
    store(u + i, direction);
  }
};

// factor is on the device; if it is null, `fixed` is used.
template <int W, typename To, typename From>
struct Scale {
  To* to;
  const From* from;
  const float* factor;
  float fixed;

  __device__ void operator()(int64_t i) const {
    const float by = factor ? *factor : fixed;
    Floats<W> v = load<W>(from + i);
#pragma unroll
    for (int k = 0; k < W; ++k) v.at[k] *= by;
    store(to + i, v);
  }
};

template <int W, typename T>
struct Combine {
  T* b;
  const T* a;
  const float* squared;
  float of_a, of_squared;

  __device__ void operator()(int64_t i) const {
    Floats<W> v = load<W>(a + i);
    const Floats<W> of = load<W>(squared + i);
#pragma unroll
    for (int k = 0; k < W; ++k) v.at[k] = of_a * v.at[k] + of_squared * of.at[k];
    store(b + i, v);
  }
};

__global__ void __launch_bounds__(kSquareParts)
    invert_norm(float* factor, const float* parts, Normaliser by) {
  const float total = group_sum<kSquareParts>(parts[threadIdx.x]);
  if (threadIdx.x == 0) *factor = 1 / (by.of_norm * std::sqrt(total) + by.eps);
}

// Computes NorMuon's factors of the lanes; each thread handles every kLaneThreads-th lane. scale holds the
// mean squares on entry and the factors on return.
__global__ void __launch_bounds__(kLaneThreads)
    reduce_lanes(float* scale, float* second, int64_t lanes, float beta2, float shape_factor,
                 StepFactor factor) {
  if (factor.leaves_out()) return;
  float before = 0, after = 0;
  for (int64_t k = threadIdx.x; k < lanes; k += kLaneThreads) {
    const float mean = scale[k], moved = second[k] + (mean - second[k]) * (1 - beta2);
    const float inverse = 1 / std::sqrt(std::fmax(moved, 1e-10f));
    second[k] = moved;
    scale[k] = inverse;
    before += mean;
    after += mean * inverse * inverse;
  }
  before = group_sum<kLaneThreads>(before);
  after = group_sum<kLaneThreads>(after);
  const float back = after > 0 ? std::sqrt(before / after) * shape_factor : 0.0f;
  for (int64_t k = threadIdx.x; k < lanes; k += kLaneThreads) scale[k] *= back;
}

struct ScaleLanes {
  float* o;
  const float* scale;
  uint32_t C;
  bool is_by_column;

  __device__ void operator()(int64_t i) const {
    const RowColumn at(i, C);
    o[i] *= scale[is_by_column ? at.column : at.row];
  }
};

template <typename T>
struct Direction {
  static constexpr bool kReadsGradient = false;
  const T* o;
  MuonMove rule;

  template <int W>
  __device__ __forceinline__ void at(const weights::Pass& /*a*/, int64_t i, Floats<W>& w,
                                     const Floats<W>& /*g*/) const {
    const Floats<W> along = load<W>(o + i);
#pragma unroll
    for (int k = 0; k < W; ++k) rule(w.at[k], along.at[k]);
  }
};

void move_momentum(const Tensor& u, const ParamState& p, const RuleStep& step, bool has_nesterov,
                   Stream& stream) {
  const int64_t n = u.elements();
  const Tensor &m = p.state[0], &g = p.param.g;
  const auto mu = static_cast<float>(step.momentum);
  with_width<float>(
      n % 4 == 0 && is_aligned(m.data) && is_aligned(g.data) && is_aligned(u.data), [&](auto width) {
        constexpr int W = decltype(width)::value;
        launch_elementwise<W>(
            n, "muon momentum", stream,
            MoveMomentum<W>{m.as<float>(), u.as<float>(), g.as<float>(),
                            step_factor(step.grad_scale, step.factor), mu, has_nesterov ? mu : 1.0f});
      });
}

void scale_by(const Tensor& to, const Tensor& from, const float* factor, float fixed, Stream& stream) {
  const char* op = "scale_into";
  const int64_t n = to.elements();
  INGOT_CHECK(from.elements() == n && to.is_contiguous() && from.is_contiguous(),
              "{}: {} from {}, or not contiguous", op, to.shape.to_string(), from.shape.to_string());
  with_dtype(to.dtype, op, [&]<typename To>() {
    with_dtype(from.dtype, op, [&]<typename From>() {
      with_width<float>(allows_wide(n, to, from), [&](auto width) {
        constexpr int W = decltype(width)::value;
        launch_elementwise<W>(n, op, stream, Scale<W, To, From>{to.as<To>(), from.as<From>(), factor, fixed});
      });
    });
  });
}

// Scratch of reduce_variance.
struct LaneScratch {
  Tensor scale;  // (lanes) f32
  Tensor parts;  // (kRowParts, C) f32; for a wide matrix

  LaneScratch(const MuonPart& part, Arena& scratch) : scale(scratch.alloc(DType::f32, {part.lanes()})) {
    if (part.is_wide()) parts = scratch.alloc(DType::f32, {kRowParts, part.columns});
  }
};

// Scales o (R, C) as NorMuon does, and by the shape factor.
void reduce_variance(const Tensor& o, const Tensor& second, const MuonPart& part, float beta2,
                     const RuleStep& step, Arena& scratch, Stream& stream) {
  const Arena::Mark mark = scratch.mark();
  const LaneScratch lanes(part, scratch);
  if (part.is_wide())
    column_mean_squares(lanes.scale, o, 1, {}, lanes.parts, stream);
  else
    row_mean_squares(lanes.scale, o, 1, {}, stream);
  launch({stream, "normuon", dim3(1), dim3(kLaneThreads)}, reduce_lanes, lanes.scale.as<float>(),
         second.as<float>() + part.second, part.lanes(), beta2, part.shape_factor(),
         step_factor(1, step.factor));
  launch_elementwise<1>(o.elements(), "normuon", stream,
                        ScaleLanes{o.as<float>(), lanes.scale.as<float>(),
                                   row_length(part.rows, part.columns, "normuon"), part.is_wide()});
  scratch.release_to(mark);
}

}  // namespace

void scale_into(const Tensor& to, const Tensor& from, float factor, Stream& stream) {
  scale_by(to, from, nullptr, factor, stream);
}

void normalise(const Tensor& to, const Tensor& x, const Normaliser& by, const Tensor& parts, Stream& stream) {
  const char* op = "normalise";
  check_tensor(parts, DType::f32, {kSquareParts + 1}, op);
  check_tensor(x, DType::f32, x.shape, op);
  const Tensor sums = parts.rows(0, kSquareParts);
  float* factor = parts.as<float>() + kSquareParts;
  sum_squares_of(sums, x, stream);
  launch({stream, op, dim3(1), dim3(kSquareParts)}, invert_norm, factor, sums.as<float>(), by);
  scale_by(to, x, factor, 1, stream);
}

void combine(const Tensor& b, const Tensor& a, const Tensor& squared, float of_a, float of_squared,
             Stream& stream) {
  const char* op = "combine";
  const int64_t n = b.elements();
  check_tensor(a, b.dtype, b.shape, op);
  check_tensor(squared, DType::f32, b.shape, op);
  with_dtype(b.dtype, op, [&]<typename T>() {
    with_width<float>(allows_wide(n, a, b, squared), [&](auto width) {
      constexpr int W = decltype(width)::value;
      launch_elementwise<W>(n, op, stream,
                            Combine<W, T>{b.as<T>(), a.as<T>(), squared.as<float>(), of_a, of_squared});
    });
  });
}

namespace {

class CudaMuon final : public Muon {
 public:
  using Muon::Muon;

  size_t scratch_bytes(const OptimParam& param) const override {
    Arena plan("muon plan", Memory::kDevice);
    size_t iteration = 0;
    for_each_part(param, options_.split_fused, [&](const MuonPart& part) {
      iteration = std::max(
          iteration,
          newton_schulz_scratch_bytes(part.rows, part.columns, options_.newton_schulz_dtype, Device::kCuda));
      const LaneScratch lanes(part, plan);
      plan.release_to(0);
    });
    return std::max(plan.peak_bytes(), iteration + Arena::kDeviceAlign);
  }
  void move_momentum(const ParamState& p, const RuleStep& step, const Tensor& u,
                     Stream& stream) const override {
    cuda::move_momentum(u, p, step, options_.nesterov, stream);
  }
  void orthogonalise(const ParamState& p, const RuleStep& step, const Tensor& u, Arena& scratch,
                     Stream& stream) const override {
    const Tensor flat = u.reshape({u.elements()});
    for_each_part(p.param, options_.split_fused, [&](const MuonPart& part) {
      const Tensor o = flat.rows(part.first(), part.end()).reshape({part.rows, part.columns});
      newton_schulz(o, options_.newton_schulz, options_.newton_schulz_dtype, scratch, stream);
      if (options_.normuon)
        reduce_variance(o, p.state[1], part, static_cast<float>(options_.beta2), step, scratch, stream);
      else if (part.shape_factor() != 1)
        scale_into(o, o, part.shape_factor(), stream);
    });
  }
  void update(std::span<const ParamUpdate> updates, Arena& /*scratch*/, Stream& stream) const override {
    const ParamUpdate& one = updates.front();
    if (one.direction.dtype == DType::bf16)
      update_along<bf16>(one, stream);
    else
      update_along<float>(one, stream);
  }

 private:
  template <typename T>
  void update_along(const ParamUpdate& u, Stream& stream) const {
    const bool is_wide = weights::is_wide(u.p) && is_aligned(u.direction.data);
    const Direction<T> move{u.direction.as<T>(), MuonMove(options_, u.step)};
    weights::launch_update(weights::make_pass(u.p, u.step, u.device_totals), is_wide, move, u.device_totals,
                           "update_muon", stream);
  }
};

}  // namespace
}  // namespace ingot::cuda

namespace ingot {

std::unique_ptr<UpdateRule> Muon::make_on_device(const Options& options) {
  return std::make_unique<cuda::CudaMuon>(options);
}

}  // namespace ingot
