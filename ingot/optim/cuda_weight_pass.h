// The one pass over a parameter's memory on a CUDA device (on the CPU: optim/weight_pass.h). It reads
// weights, gradient and average once, applies the rule's move, and writes them once. For .cu files only.
#pragma once

#include <cstring>
#include <memory>
#include <type_traits>

#include "ingot/core/copy.h"
#include "ingot/core/cuda/cuda_kernel.h"
#include "ingot/ops/bf16_tail.h"
#include "ingot/optim/cuda_shard_places.h"
#include "ingot/optim/cuda_step_factor.h"
#include "ingot/optim/round_stochastically.h"
#include "ingot/optim/rule.h"

namespace ingot::cuda::weights {

// RoundingPlaces maps element i of a shard to its index in the parameter: `begin + i` or, if the shard is
// scattered, the place that its rectangle gives. Packs of a scattered shard need scattered.is_wide, so that
// each lies in one block of random words.
struct RoundingPlaces {
  int64_t begin = 0, columns = 0;  // columns of the parameter; 0 unless the shard is scattered
  ShardPlaces scattered = {};

  __device__ __forceinline__ int64_t of(int64_t i) const {
    if (columns == 0) return begin + i;
    const RowColumn at = scattered.of(i);
    return at.row * columns + at.column;
  }
};

// The tensors of a pass. The weights are either w32, or w16 with tail, or w16 with rounding.
struct Pass {
  int64_t n, own;  // elements, and those that totals count
  float* w32;
  bf16* w16;
  uint16_t* tail;
  RandomKey rounding;
  RoundingPlaces places;  // with rounding
  bf16* compute;
  f16* compute_f16;
  float* g;
  bool keeps_g;
  float* average;
  float average_part;
  StepFactor factor;
  float* totals;
};

template <int W>
__device__ __forceinline__ Floats<W> read_weights(const Pass& a, int64_t i) {
  if (a.w32) return load<W>(static_cast<const float*>(a.w32 + i));
  if (!a.tail) return load<W>(static_cast<const bf16*>(a.w16 + i));
  const Raw<bf16, W> high = *reinterpret_cast<const Raw<bf16, W>*>(a.w16 + i);
  const Raw<uint16_t, W> low = *reinterpret_cast<const Raw<uint16_t, W>*>(a.tail + i);
  Floats<W> w;
#pragma unroll
  for (int k = 0; k < W; ++k) w.at[k] = join_tail(high.at[k], low.at[k]);
  return w;
}

template <int W>
__device__ __forceinline__ void write_weights(const Pass& a, int64_t i, const Floats<W>& w) {
  if (a.w32) {
    store(a.w32 + i, w);
    if (a.compute) store(a.compute + i, w);
    if (a.compute_f16) store(a.compute_f16 + i, w);
    return;
  }
  Raw<bf16, W> high;
  Raw<uint16_t, W> low;
  if (a.tail) {
#pragma unroll
    for (int k = 0; k < W; ++k) split_tail(high.at[k], low.at[k], w.at[k]);
    *reinterpret_cast<Raw<uint16_t, W>*>(a.tail + i) = low;
  } else {
    static_assert(8 % W == 0, "the half-words of W elements are of one block of random words");
    const int64_t place = a.places.of(i);
    const Philox4 words = random_block(a.rounding, static_cast<uint64_t>(place) / 8);
#pragma unroll
    for (int k = 0; k < W; ++k) {
      const int half = static_cast<int>((place + k) % 8);
      high.at[k] =
          round_stochastically(w.at[k], static_cast<uint16_t>(words[half / 2] >> (half % 2 == 0 ? 0 : 16)));
    }
  }
  *reinterpret_cast<Raw<bf16, W>*>(a.w16 + i) = high;
}

// Writes row `block` of the totals: |w|^2, |g|^2, |change|^2 and change . w of the block's elements that the
// pass counts, as in RangeTotals. The thread has W elements from element i on.
template <int W>
__device__ __forceinline__ void report_totals(const Pass& a, int64_t block, int64_t i,
                                              const Floats<W>& before, const Floats<W>& w, const Floats<W>& g,
                                              float factor) {
  float* totals = a.totals;
  float sums[4] = {};
#pragma unroll
  for (int k = 0; k < W; ++k) {
    if (i + k >= a.own) continue;
    const float change = w.at[k] - before.at[k], gradient = g.at[k] * factor;
    sums[0] += before.at[k] * before.at[k];
    sums[1] += gradient * gradient;
    sums[2] += change * change;
    sums[3] += change * before.at[k];
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float sum = group_sum<kThreads>(sums[i]);
    if (threadIdx.x == 0) totals[block * 4 + i] = sum;
  }
}

// Zeroes the gradient unless it is kept, updates the average and stores the weights after the move of W
// elements.
template <int W>
__device__ __forceinline__ void finish_pack(const Pass& a, int64_t i, const Floats<W>& w) {
  if (!a.keeps_g) store(a.g + i, Floats<W>{});
  if (a.average) {
    Floats<W> average = load<W>(static_cast<const float*>(a.average + i));
#pragma unroll
    for (int k = 0; k < W; ++k) average.at[k] += (w.at[k] - average.at[k]) * a.average_part;
    store(a.average + i, average);
  }
  write_weights(a, i, w);
}

// Each thread of the pass's block updates W elements, from i on, by move.at<W>(pass, i, w, g). A move that
// does not read g sets kReadsGradient to false.
template <int W, typename Move>
__device__ __forceinline__ void update_block(const Pass& a, const Move& move, int64_t block) {
  const int64_t i = (block * kThreads + threadIdx.x) * W;
  Floats<W> before{}, w{}, g{};
  if (a.factor.leaves_out()) {
    if (i < a.n && !a.keeps_g) store(a.g + i, g);
    return;
  }
  if (i < a.n) {
    w = before = read_weights<W>(a, i);
    if (Move::kReadsGradient || a.totals) g = load<W>(static_cast<const float*>(a.g + i));
    move.template at<W>(a, i, w, g);
    finish_pack(a, i, w);
  }
  if (a.totals) report_totals(a, block, i, before, w, g, a.factor.value());
}

template <int W, typename Move>
__global__ void __launch_bounds__(kThreads) update(Pass a, Move move) {
  update_block<W>(a, move, blockIdx.x);
}

// Passes over several parameters by one launch. It is an argument of the kernel: CUDA passes up to 32,764
// bytes.
template <typename Move>
struct Table {
  struct Entry {
    Pass pass;
    Move move;
    unsigned first_block;
  };
  static constexpr int kMax = 32000 / sizeof(Entry);

  int count = 0;
  alignas(Entry) unsigned char entries[kMax * sizeof(Entry)] = {};  // moves have no default

  void add(const Entry& entry) {
    static_assert(std::is_trivially_copyable_v<Entry>);
    std::memcpy(entries + count++ * sizeof(Entry), &entry, sizeof(Entry));
  }
  __device__ __forceinline__ const Entry& at(int i) const {
    return reinterpret_cast<const Entry*>(entries)[i];
  }
  // Returns the entry that the block belongs to: the last one that begins at it or before it.
  __device__ __forceinline__ const Entry& of(unsigned block) const {
    int first = 0, end = count;
    while (end - first > 1) {
      const int middle = (first + end) / 2;
      (at(middle).first_block <= block ? first : end) = middle;
    }
    return at(first);
  }
};

template <int W, typename Move>
__global__ void __launch_bounds__(kThreads) update_table(const __grid_constant__ Table<Move> table) {
  const typename Table<Move>::Entry& entry = table.of(blockIdx.x);
  update_block<W>(entry.pass, entry.move, blockIdx.x - entry.first_block);
}

inline bool is_wide(const ParamState& p) {
  const OptimParam& param = p.param;
  bool all = param.elements() % 4 == 0 && is_aligned(param.w.data) && is_aligned(param.tail.data) &&
             is_aligned(param.compute.data) && is_aligned(param.g.data) && is_aligned(p.average.data);
  for (const Tensor& s : p.state) all = all && is_aligned(s.data);
  return all;
}

inline RoundingPlaces rounding_places(const OptimParam& p) {
  if (!p.is_scattered) return {.begin = p.begin()};
  RoundingPlaces places{.columns = p.columns(), .scattered = places_of(p, "stochastic rounding")};
  places.scattered.is_wide = places.scattered.is_wide && p.columns() % 4 == 0;
  return places;
}

inline Pass make_pass(const ParamState& p, const RuleStep& step, const Tensor& totals) {
  const OptimParam& param = p.param;
  const bool is_f32 = param.w.dtype == DType::f32,
             is_f16 = param.compute && param.compute.dtype == DType::f16;
  Pass pass{.n = param.elements(),
            .own = param.own_elements(),
            .w32 = is_f32 ? param.w.as<float>() : nullptr,
            .w16 = is_f32 ? nullptr : param.w.as<bf16>(),
            .tail = optional<uint16_t>(param.tail),
            .rounding = param.rounding,
            .places = is_f32 || param.tail ? RoundingPlaces{} : rounding_places(param),
            .compute = is_f16 ? nullptr : optional<bf16>(param.compute),
            .compute_f16 = is_f16 ? param.compute.as<f16>() : nullptr,
            .g = param.g.as<float>(),
            .keeps_g = param.keeps_g,
            .average = optional<float>(p.average),
            .average_part = step.average_part,
            .factor = step_factor(step.grad_scale, step.factor),
            .totals = optional<float>(totals)};
  pass.rounding.step = static_cast<uint64_t>(step.t);
  return pass;
}

inline unsigned blocks_of(const Pass& pass, int width, const Tensor& totals) {
  const unsigned blocks = blocks_for(pass.n, int64_t{kThreads} * width);
  INGOT_CHECK(!totals || totals.elements() >= int64_t{blocks} * 4, "an update: totals of {} rows, {} blocks",
              totals.elements() / 4, blocks);
  return blocks;
}

// is_wide: packs of 4 elements are aligned, and the move can handle them.
template <typename Move>
void launch_update(const Pass& pass, bool is_wide, const Move& move, const Tensor& totals, const char* op,
                   Stream& stream) {
  with_width<float>(is_wide && pass.places.scattered.is_wide, [&](auto width) {
    constexpr int W = decltype(width)::value;
    const unsigned blocks = blocks_of(pass, W, totals);
    if (totals) fill_zero(totals, stream);
    launch({stream, op, dim3(blocks), dim3(kThreads)}, update<W, Move>, pass, move);
  });
}

// Runs passes that all have packs of W elements, as many by one launch as fit into its table. run() comes
// last.
template <int W, typename Move>
class Launches {
 public:
  Launches(const char* op, Stream& stream) : op_(op), stream_(stream) {}

  void add(const Pass& pass, const Move& move, const Tensor& totals) {
    const unsigned blocks = blocks_of(pass, W, totals);
    if (totals) fill_zero(totals, stream_);
    if (blocks == 0) return;
    table_->add({pass, move, blocks_});
    blocks_ += blocks;
    if (table_->count == Table<Move>::kMax) run();
  }
  void run() {
    if (table_->count > 0)
      launch({stream_, op_, dim3(blocks_), dim3(kThreads)}, update_table<W, Move>, *table_);
    table_->count = 0;
    blocks_ = 0;
  }

 private:
  const char* op_;
  Stream& stream_;
  std::unique_ptr<Table<Move>> table_ = std::make_unique<Table<Move>>();
  unsigned blocks_ = 0;
};

}  // namespace ingot::cuda::weights
