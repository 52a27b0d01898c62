#include "ingot/ops/cross_entropy.h"

#include <limits>

#include "ingot/core/cuda/cuda_device.h"
#include "ingot/ops/cuda/cuda_softmax.h"
#include "ingot/ops/loss/logit_cap_rules.h"

namespace ingot::cuda {
namespace {

using softmax::Math;
using softmax::PartialSoftmax;

constexpr int kRowThreads = 1024;

template <typename L, typename D>
struct Rows {
  float* losses;
  uint8_t* is_correct;
  D* d_logits;
  const L* logits;
  const int32_t* targets;
  int64_t N;
  int V, Vp;
  float grad_scale, label_smoothing, z_loss;
};

// Writes the results of a row without a target: the row is ignored, or its target is invalid and the loss
// becomes NaN.
template <int W, int kCount, typename L, typename D>
__device__ __forceinline__ void write_no_loss(const Rows<L, D>& a, int64_t n, int target) {
  if (a.d_logits)
    for (int column = static_cast<int>(threadIdx.x) * W; column < a.Vp; column += kCount * W)
      store(a.d_logits + n * a.Vp + column, Floats<W>{});
  if (threadIdx.x != 0) return;
  a.losses[n] = target == kIgnoreIndex ? 0.0f : std::numeric_limits<float>::quiet_NaN();
  if (a.is_correct) a.is_correct[n] = 0;
}

// A block owns a row. It reads the logits once for the softmax and once more, partly from the L2 cache,
// for the gradient, and writes the gradient.
template <int W, typename L, typename D, typename Cap>
__global__ void __launch_bounds__(kRowThreads) rows_loss(Rows<L, D> a, Cap cap) {
  const int64_t n = blockIdx.x;
  const L* x = a.logits + n * a.Vp;
  D* d = a.d_logits ? a.d_logits + n * a.Vp : nullptr;
  const int target = a.targets[n];
  const bool has_target = target >= 0 && target<a.V, is_smoothed = a.label_smoothing> 0;
  if (!has_target) return write_no_loss<W, kRowThreads>(a, n, target);
  const float z_target = cap(widened(x[target])).z;
  PartialSoftmax part = PartialSoftmax::none();
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

// Threads of a block that holds its row in shared memory: two such blocks share a multiprocessor if the
// logits are bf16 and the vocabulary is GPT-2's.
constexpr int kHeldThreads = 512;
// Packs that a thread has in flight while it copies a row into shared memory.
constexpr int kPacksUnderWay = 4;
// Upper bound of the shared memory that the kernel uses in addition to its row.
constexpr size_t kReductionBytes = 1024;

// exp(z - z_max). With kIsFast it is one multiply-add and one instruction of the special function unit; its
// error is 2^-21 and |z| 2^-23, of which the second cancels in the probabilities.
template <bool kIsFast>
struct Exponential {
  float z_max;

  __device__ __forceinline__ float operator()(float z) const {
    if constexpr (!kIsFast) return Math::exp(z - z_max);
    constexpr float kLog2e = 1.44269504f;
    const float x = std::fma(z, kLog2e, -z_max * kLog2e);
#ifdef __CUDA_ARCH__
    float e;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(e) : "f"(x));
    return e;
#else
    return std::exp2(x);
#endif
  }
};

// Calls f(column, W logits of the row from there on, classes) for the thread's packs with classes, which are
// the first V columns. `classes` is the number of them in the pack, a constant for whole packs. Returns the
// column of the thread's next pack.
template <int W, typename L, typename F>
__device__ __forceinline__ int for_each_pack(const L* row, int V, F&& f) {
  const auto pack = [&](int column) { return widened(reinterpret_cast<const Raw<L, W>*>(row)[column / W]); };
  int column = static_cast<int>(threadIdx.x) * W;
  for (; column + W <= V; column += kHeldThreads * W)
    f(column, pack(column), std::integral_constant<int, W>{});
  if (column < V) {
    f(column, pack(column), V - column);
    column += kHeldThreads * W;
  }
  return column;
}

// Copies the row x (Vp) into shared memory and returns the largest of its first V elements in every thread.
template <int W, typename L>
__device__ __forceinline__ float hold_row(L* row, const L* x, int V, int Vp) {
  const int packs = Vp / W;
  for (int first = static_cast<int>(threadIdx.x); first < packs; first += kHeldThreads * kPacksUnderWay) {
    Raw<L, W> raw[kPacksUnderWay];
#pragma unroll
    for (int k = 0; k < kPacksUnderWay; ++k)
      if (const int pack = first + k * kHeldThreads; pack < packs) raw[k] = load_raw<W>(x + pack * W);
#pragma unroll
    for (int k = 0; k < kPacksUnderWay; ++k)
      if (const int pack = first + k * kHeldThreads; pack < packs)
        reinterpret_cast<Raw<L, W>*>(row)[pack] = raw[k];
  }
  float most = softmax::kLowest;  // the thread reads its own packs, so there is no barrier
  for_each_pack<W>(row, V, [&](int, const Floats<W>& values, auto classes) {
#pragma unroll
    for (int i = 0; i < W; ++i)
      if (i < classes) most = std::fmax(most, values.at[i]);
  });
  return group_max<kHeldThreads>(most);
}

// Returns whether a column before `end` has the logit x.
template <int W, typename L>
__device__ __forceinline__ bool has_before(const L* row, float x, int end) {
  float found = 0;
  for_each_pack<W>(row, end, [&](int, const Floats<W>& values, auto classes) {
#pragma unroll
    for (int i = 0; i < W; ++i)
      if (i < classes && values.at[i] == x) found = 1;
  });
  return group_max<kHeldThreads>(found) > 0;
}

// As rows_loss with a gradient. A block owns a row, reads it once, holds it in shared memory, and writes its
// gradient, which may overwrite the logits: 4 bytes per logit in bf16. On Hopper, whose blocks have 227 KiB,
// the longest rows have 115,000 columns of bf16 or 57,000 of f32; rows_loss reads longer ones twice.
template <int W, typename L, typename D, typename Cap>
__global__ void __launch_bounds__(kHeldThreads) held_rows_loss(Rows<L, D> a, Cap cap) {
  const int64_t n = blockIdx.x;
  const int target = a.targets[n];
  if (target < 0 || target >= a.V) return write_no_loss<W, kHeldThreads>(a, n, target);
  L* row = dynamic_shared<L>(a.Vp);
  const float x_max = hold_row<W>(row, a.logits + n * a.Vp, a.V, a.Vp), z_max = cap(x_max).z;
  const float x_target = widened(row[target]), z_target = cap(x_target).z;
  const Exponential<!std::is_same_v<L, float>> exponential{z_max};
  const bool is_smoothed = a.label_smoothing > 0;
  float total = 0, z_sum = 0;
  for_each_pack<W>(row, a.V, [&](int, const Floats<W>& values, auto classes) {
#pragma unroll
    for (int i = 0; i < W; ++i) {
      if (i >= classes) continue;
      const float z = cap(values.at[i]).z;
      total += exponential(z);
      if (is_smoothed) z_sum += z;
    }
  });
  total = group_sum<kHeldThreads>(total);
  if (is_smoothed) z_sum = group_sum<kHeldThreads>(z_sum);
  const float log_total = std::log(total), lse = z_max + log_total;
  const float off = a.label_smoothing / static_cast<float>(a.V);
  const bool is_top = a.is_correct && x_target == x_max && !has_before<W>(row, x_max, target);
  if (threadIdx.x == 0) {
    float loss = log_total + (z_max - z_target) + a.z_loss * lse * lse;
    if (is_smoothed) loss += a.label_smoothing * z_target - off * z_sum;
    a.losses[n] = loss;
    if (a.is_correct) a.is_correct[n] = is_top ? 1 : 0;
  }
  const float factor = a.grad_scale * (1 + 2 * a.z_loss * lse) / total, shift = a.grad_scale * off,
              on_target = a.grad_scale * (1 - a.label_smoothing);
  D* d = a.d_logits + n * a.Vp;
  int next = for_each_pack<W>(row, a.V, [&](int column, Floats<W> values, auto classes) {
    const int own = target - column;  // the target's place in the pack, if it is there
    Floats<W> slope;
#pragma unroll
    for (int i = 0; i < W; ++i) {
      const CapValue<Math> c = cap(values.at[i]);
      slope.at[i] = i < classes ? c.slope : 0.0f;
      values.at[i] = std::fma(exponential(c.z), factor, -shift);
    }
    if (own >= 0 && own < W) {
#pragma unroll
      for (int i = 0; i < W; ++i) values.at[i] -= i == own ? on_target : 0.0f;
    }
#pragma unroll
    for (int i = 0; i < W; ++i) values.at[i] = i < classes ? values.at[i] * slope.at[i] : 0.0f;
    store(d + column, values);
  });
  for (; next < a.Vp; next += kHeldThreads * W) store(d + next, Floats<W>{});  // the padding
}

template <typename L, typename D>
void launch_rows(const Rows<L, D>& rows, bool is_wide, const CrossEntropyConfig& config, Stream& stream) {
  const char* op = "cross_entropy";
  const dim3 blocks(blocks_for(rows.N, 1));
  const size_t row_bytes = static_cast<size_t>(rows.Vp) * sizeof(L);
  const bool is_held = is_wide && rows.d_logits && row_bytes + kReductionBytes <= most_shared_bytes();
  with_cap_rule<Math>(config, [&](auto cap) {
    using Cap = decltype(cap);
    constexpr int W = kWide<L>;
    if (is_held)
      launch({stream, op, blocks, dim3(kHeldThreads), row_bytes}, held_rows_loss<W, L, D, Cap>, rows, cap);
    else if (is_wide)
      launch({stream, op, blocks, dim3(kRowThreads)}, rows_loss<W, L, D, Cap>, rows, cap);
    else
      launch({stream, op, blocks, dim3(kRowThreads)}, rows_loss<1, L, D, Cap>, rows, cap);
  });
}

}  // namespace

void cross_entropy(const Tensor& losses, const Tensor& is_correct, const Tensor& d_logits,
                   const Tensor& logits, const Tensor& targets, const CrossEntropyConfig& config,
                   Stream& stream) {
  const auto run = [&](auto logit, auto gradient) {
    using L = decltype(logit);
    using D = decltype(gradient);
    const Rows<L, D> rows{losses.as<float>(),
                          optional<uint8_t>(is_correct),
                          optional<D>(d_logits),
                          logits.as<L>(),
                          targets.as<int32_t>(),
                          logits.dim(0),
                          static_cast<int>(config.vocab),
                          static_cast<int>(logits.dim(1)),
                          config.grad_scale,
                          config.label_smoothing,
                          config.z_loss};
    const bool is_wide = rows.Vp % kWide<L> == 0 && is_aligned(logits.data) && is_aligned(d_logits.data);
    launch_rows(rows, is_wide, config, stream);
  };
  if (logits.dtype == DType::bf16) return run(bf16{}, bf16{});
  with_dtype(d_logits ? d_logits.dtype : DType::f32, "cross_entropy",
             [&]<typename D>() { run(float{}, D{}); });
}

}  // namespace ingot::cuda
