#include "ingot/ops/cross_entropy.h"

#include <limits>

#include "ingot/ops/cuda/cuda_softmax.h"
#include "ingot/ops/loss/logit_cap_rules.h"

namespace ingot::cuda {
namespace {

using softmax::Math;
using softmax::Part;

constexpr int kRowThreads = 1024;

template <typename D>
struct Rows {
  float* losses;
  uint8_t* is_correct;
  D* d_logits;
  const float* logits;
  const int32_t* targets;
  int64_t N;
  int V, Vp;
  float grad_scale, label_smoothing, z_loss;
};

template <int W, typename D>
__device__ __forceinline__ void fill_zero(D* row, int Vp) {
  for (int column = static_cast<int>(threadIdx.x) * W; column < Vp; column += kRowThreads * W)
    store(row + column, Floats<W>{});
}

// A block owns a row. It reads the logits once for the softmax and once more, partly from the L2 cache,
// for the gradient, and writes the gradient.
template <int W, typename D, typename Cap>
__global__ void __launch_bounds__(kRowThreads) rows_loss(Rows<D> a, Cap cap) {
  const int64_t n = blockIdx.x;
  const float* x = a.logits + n * a.Vp;
  D* d = a.d_logits ? a.d_logits + n * a.Vp : nullptr;
  const int target = a.targets[n];
  const bool has_target = target >= 0 && target<a.V, is_smoothed = a.label_smoothing> 0;
  if (!has_target) {  // the row is ignored, or its target is invalid and the loss becomes NaN
    if (d) fill_zero<W>(d, a.Vp);
    if (threadIdx.x != 0) return;
    a.losses[n] = target == kIgnoreIndex ? 0.0f : std::numeric_limits<float>::quiet_NaN();
    if (a.is_correct) a.is_correct[n] = 0;
    return;
  }
  const float z_target = cap(x[target]).z;
  Part part = Part::none();
  for (int column = static_cast<int>(threadIdx.x) * W; column < a.V; column += kRowThreads * W) {
    const Floats<W> values = load<W>(x + column);
#pragma unroll
    for (int i = 0; i < W; ++i)
      if (column + i < a.V) part.add(values.at[i], column + i, cap, is_smoothed);
  }
  part = softmax::merge_block<kRowThreads>(part);
  const float log_total = std::log(part.total), lse = part.z_max + log_total;
  const float off = a.label_smoothing / static_cast<float>(a.V);
  if (threadIdx.x == 0) {
    float loss = log_total + (part.z_max - z_target) + a.z_loss * lse * lse;
    if (is_smoothed) loss += a.label_smoothing * z_target - off * part.z_sum;
    a.losses[n] = loss;
    if (a.is_correct) a.is_correct[n] = part.top == target ? 1 : 0;
  }
  if (!d) return;
  const float factor = (1 + 2 * a.z_loss * lse) / part.total;
  for (int column = static_cast<int>(threadIdx.x) * W; column < a.Vp; column += kRowThreads * W) {
    Floats<W> values = load<W>(x + column);
#pragma unroll
    for (int i = 0; i < W; ++i) {
      const CapValue<Math> c = cap(values.at[i]);
      const float on_target = column + i == target ? 1 - a.label_smoothing : 0.0f;
      const float g = Math::exp(c.z - part.z_max) * factor - off - on_target;
      values.at[i] = column + i < a.V ? a.grad_scale * g * c.slope : 0.0f;
    }
    store(d + column, values);
  }
}

}  // namespace

void cross_entropy(const Tensor& losses, const Tensor& is_correct, const Tensor& d_logits,
                   const Tensor& logits, const Tensor& targets, const CrossEntropyConfig& config,
                   Stream& stream) {
  const char* op = "cross_entropy";
  const int64_t N = logits.dim(0), Vp = logits.dim(1);
  with_dtype(d_logits ? d_logits.dtype : DType::f32, op, [&](auto value) {
    using D = decltype(value);
    const Rows<D> rows{losses.as<float>(),
                       optional<uint8_t>(is_correct),
                       optional<D>(d_logits),
                       logits.as<float>(),
                       targets.as<int32_t>(),
                       N,
                       static_cast<int>(config.vocab),
                       static_cast<int>(Vp),
                       config.grad_scale,
                       config.label_smoothing,
                       config.z_loss};
    with_width<float>(Vp % 4 == 0 && is_aligned(logits.data) && is_aligned(d_logits.data), [&](auto width) {
      with_cap_rule<Math>(config, [&](auto cap) {
        launch({stream, op, dim3(blocks_for(N, 1)), dim3(kRowThreads)},
               rows_loss<decltype(width)::value, D, decltype(cap)>, rows, cap);
      });
    });
  });
}

}  // namespace ingot::cuda
