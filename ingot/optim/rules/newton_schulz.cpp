#include "ingot/optim/rules/newton_schulz.h"

#include <algorithm>
#include <cmath>

#include "ingot/core/cuda/cuda_device.h"
#include "ingot/core/dispatch.h"
#include "ingot/core/parallel.h"
#include "ingot/ops/matmul.h"
#include "ingot/optim/cuda_update.h"
#include "ingot/optim/rules/cuda_muon.h"
#include "ingot/optim/sum_of_squares.h"

namespace ingot {
namespace {

// Memory of an iteration on x (R, C); S is the smaller of R and C.
struct Iterates {
  Tensor x;         // (R, C) in the iteration's dtype; empty in f32, which uses the caller's x
  Tensor a, b;      // (S, S) in the iteration's dtype; b is empty in f32, which uses squared
  Tensor squared;   // (S, S) f32: A²
  Tensor next;      // (R, C) f32; empty in bf16, which uses the caller's x
  Tensor partials;  // f64 partial sums; on a CUDA device f32, followed by the factor made from them

  Iterates(int64_t R, int64_t C, DType iteration, Arena& arena) {
    const int64_t S = std::min(R, C);
    const bool is_f32 = iteration == DType::f32;
    if (!is_f32) x = arena.alloc(iteration, {R, C});
    a = arena.alloc(iteration, {S, S});
    b = is_f32 ? Tensor{} : arena.alloc(iteration, {S, S});
    squared = arena.alloc(DType::f32, {S, S});
    if (is_f32) next = arena.alloc(DType::f32, {R, C});
    partials = arena.device() == Device::kCuda ? arena.alloc(DType::f32, {cuda::kSquareParts + 1})
                                               : arena.alloc(DType::f64, {sum_of_squares_parts(R * C)});
  }
};

// The assignment goes through the bits, since copies of a struct do not vectorise.
inline void put(float& to, float x) { to = x; }
template <typename T>
void put(T& to, float x) {
  to.bits = T(x).bits;
}

template <typename To, typename From>
void scale_elements(To* to, const From* from, float scale, int64_t n) {
  parallel_for(n, kGrain, [=](int64_t begin, int64_t end) {
#pragma omp simd
    for (int64_t i = begin; i < end; ++i) put(to[i], scale * static_cast<float>(from[i]));
  });
}

// to = scale * from, element by element. Each is f32, bf16 or f16.
void scale_into(const Tensor& to, const Tensor& from, float scale, [[maybe_unused]] Stream& stream) {
  if constexpr (kHasCuda) {
    if (to.device == Device::kCuda) return cuda::scale_into(to, from, scale, stream);
  }
  with_dtype(from.dtype, __func__, [&]<typename From>() {
    with_dtype(to.dtype, __func__,
               [&]<typename To>() { scale_elements(to.as<To>(), from.as<From>(), scale, to.elements()); });
  });
}

template <typename T>
void combine_elements(T* b, const T* a, const float* squared, const NewtonSchulzStep& step, int64_t n) {
  const auto of_a = static_cast<float>(step.b), of_squared = static_cast<float>(step.c);
  parallel_for(n, kGrain, [=](int64_t begin, int64_t end) {
#pragma omp simd
    for (int64_t i = begin; i < end; ++i)
      put(b[i], of_a * static_cast<float>(a[i]) + of_squared * squared[i]);
  });
}

// b = step.b * a + step.c * squared; b may be squared.
void combine(const Tensor& b, const Tensor& a, const Tensor& squared, const NewtonSchulzStep& step,
             [[maybe_unused]] Stream& stream) {
  if constexpr (kHasCuda) {
    if (b.device == Device::kCuda)
      return cuda::combine(b, a, squared, static_cast<float>(step.b), static_cast<float>(step.c), stream);
  }
  with_dtype(a.dtype, __func__, [&]<typename T>() {
    combine_elements(b.as<T>(), a.as<T>(), squared.as<float>(), step, a.elements());
  });
}

struct NormFactor {
  double of_norm, eps;
};

// to = x / (of_norm * |x|_F + eps); to may be x.
void normalise(const Tensor& to, const Tensor& x, const NormFactor& by, const Tensor& partials,
               Stream& stream) {
  if constexpr (kHasCuda) {
    if (x.device == Device::kCuda)
      return cuda::normalise(to, x, {static_cast<float>(by.of_norm), static_cast<float>(by.eps)}, partials,
                             stream);
  }
  const double norm = std::sqrt(parallel_sum_of_squares(
      x.as<float>(), x.elements(), {partials.as<double>(), static_cast<size_t>(partials.dim(0))}));
  scale_into(to, x, static_cast<float>(1 / (by.of_norm * norm + by.eps)), stream);
}

// next (f32) = step.a * x + B x, or step.a * x + x B if x is tall.
void iterate(const Tensor& next, const Tensor& x, const Iterates& m, const NewtonSchulzStep& step,
             Stream& stream) {
  const bool is_tall = x.dim(0) > x.dim(1);
  const Tensor b = m.b ? m.b : m.squared;
  matmul(m.a, x, x, is_tall ? MatmulForm::kTN : MatmulForm::kNT, false, stream);
  matmul(m.squared, m.a, m.a, MatmulForm::kNT, false, stream);  // A is symmetric
  combine(b, m.a, m.squared, step, stream);
  scale_into(next, x, static_cast<float>(step.a), stream);
  if (is_tall)
    matmul(next, x, b, MatmulForm::kNN, true, stream);
  else
    matmul(next, b, x, MatmulForm::kNN, true, stream);
}

}  // namespace

std::span<const NewtonSchulzStep, kNewtonSchulzSteps> newton_schulz_steps(NewtonSchulzKind kind) {
  static constexpr NewtonSchulzStep kQuinticStep{3.4445, -4.7750, 2.0315};
  static constexpr std::array<NewtonSchulzStep, kNewtonSchulzSteps> kQuintic{
      kQuinticStep, kQuinticStep, kQuinticStep, kQuinticStep, kQuinticStep};
  static constexpr std::array<NewtonSchulzStep, kNewtonSchulzSteps> kPolarExpress{
      {{8.156554524902461, -22.48329292557795, 15.878769915207462},
       {4.042929935166739, -2.808917465908714, 0.5000178451051316},
       {3.8916678022926607, -2.772484153217685, 0.5060648178503393},
       {3.285753657755655, -2.3681294933425376, 0.46449024233003106},
       {2.3465413258596377, -1.7098278382687081, 0.42323551169305323}}};
  return kind == NewtonSchulzKind::kQuintic ? kQuintic : kPolarExpress;
}

void newton_schulz(const Tensor& x, NewtonSchulzKind kind, DType iteration, Arena& scratch, Stream& stream) {
  INGOT_CHECK(x.rank() == 2 && x.is_contiguous() && x.dtype == DType::f32,
              "newton_schulz: x must be a contiguous f32 matrix, got {} {}", name(x.dtype),
              x.shape.to_string());
  const Arena::Mark mark = scratch.mark();
  const Iterates m(x.dim(0), x.dim(1), iteration, scratch);
  const NormFactor by = kind == NewtonSchulzKind::kQuintic ? NormFactor{1, 1e-7} : NormFactor{1.02, 1e-6};
  if (iteration == DType::f32) {
    Tensor current = x, next = m.next;
    normalise(current, x, by, m.partials, stream);
    for (const NewtonSchulzStep& step : newton_schulz_steps(kind)) {
      iterate(next, current, m, step, stream);
      std::swap(current, next);
    }
    scale_into(x, current, 1, stream);  // an odd number of steps ends in scratch
  } else {
    normalise(m.x, x, by, m.partials, stream);
    for (const NewtonSchulzStep& step : newton_schulz_steps(kind)) {
      iterate(x, m.x, m, step, stream);
      scale_into(m.x, x, 1, stream);
    }
  }
  scratch.release_to(mark);
}

double newton_schulz_flops(int64_t R, int64_t C) {
  const auto small = static_cast<double>(std::min(R, C)), large = static_cast<double>(std::max(R, C));
  return kNewtonSchulzSteps * (4 * small * small * large + 2 * small * small * small);
}

size_t newton_schulz_scratch_bytes(int64_t R, int64_t C, DType iteration, Device device) {
  Arena arena("newton_schulz plan", memory_of(device));
  const Iterates m(R, C, iteration, arena);
  return arena.peak_bytes();
}

}  // namespace ingot
