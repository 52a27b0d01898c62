// The FP8 products of a linear layer: which tensors are rounded to which 8-bit float, and with what
// scales. Values stay in the compute dtype between layers. A product first rounds its operands, then
// multiplies the rounded values exactly and sums in f32 (ops/cast_fp8.h).
//
//   recipe            y = x wᵀ              dx = dy w              dw += dyᵀ x
//   kTensorwise       x, w e4m3             dy e5m2, w e4m3        dy e5m2, x e4m3      scale: max / amax
//   kDelayed          the same, with scale: max / (largest amax of the last steps) / 2^margin
//   kRowwise          x, w e4m3             dy, w e4m3             dy, x e4m3           powers of two
//   kRowwiseGwHp      x, w e4m3 rowwise     dy rowwise, w whole    dy, x not rounded    powers of two
//
// With one scale for all of a tensor, dy is cast once for both of its products. A device then also casts x
// once: forward writes its codes in both layouts, and backward reads those that it left. It casts w once per
// step, if the state holds the codes of weights. Otherwise x and w are cast once for forward and once for
// backward. Rowwise means one scale for every line along the dim that the product sums over, so a tensor is
// rounded twice: along its rows and along its columns. (Micikevicius et al. 2022, arXiv:2209.05433; the
// recipes follow torchao.)
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ingot/core/arena.h"
#include "ingot/core/stream.h"
#include "ingot/core/tensor.h"
#include "ingot/nn/layer.h"
#include "ingot/ops/linear_fused.h"
#include "ingot/ops/matmul.h"

namespace ingot {

enum class Fp8Recipe { kNone, kTensorwise, kRowwise, kRowwiseGwHp, kDelayed };

struct Fp8LinearConfig {
  Fp8Recipe recipe = Fp8Recipe::kNone;
  std::vector<std::string> layers =
      {};                     // name patterns with * ("blocks.*.mlp.*"); empty: all linears of the blocks
  int64_t amax_history = 16;  // kDelayed: number of past steps in the history
  int64_t margin = 0;         // kDelayed: headroom above the largest amax, in octaves

  // Throws a kUsage error that names the key, the rule and the value.
  void validate() const;
  // True if the linear `name` (out, in) is converted: a pattern matches, and both dims are multiples of 16.
  bool converts(const std::string& name, int64_t out, int64_t in) const;
};

// True if the text matches the pattern, in which * stands for any characters.
bool matches_pattern(std::string_view text, std::string_view pattern);

// Fp8Context is what the casts and products of a pass share.
struct Fp8Context {
  Fp8State& state;
  Arena& scratch;
  Region& region;
  Stream& stream;

  // REQUIRES: ctx.fp8 is not null.
  static Fp8Context of(const LayerContext& ctx) { return {*ctx.fp8, ctx.scratch, ctx.region, ctx.stream}; }
};

// One converted linear: its recipe, and the indices of its tensors x, w, dy in the Fp8State. If the linear is
// sharded over ranks, so are w and one of x and dy; one scale for all of a tensor is that of the whole tensor
// (Region::max). Rowwise, each shard of a line has a scale of its own: it is a power of two, so it changes
// only which small values are lost, and these are fewer than with the scale of the whole line.
struct Fp8Linear {
  Fp8Recipe recipe = Fp8Recipe::kNone;
  int first_tensor = 0;
  bool splits_x = false, splits_dy = false;
  bool splits_w() const { return splits_x || splits_dy; }

  // y (N, out) = x (N, in) · w (out, in)ᵀ + terms, which are empty on the CPU. With kTensorwise, x, and in
  // backward dy, may have a place for an amax (Tensor::with_amax) that the op which wrote it has raised; the
  // cast then makes no pass of its own over the tensor. codes: (in + 1, N) e4m3, or empty. The codes of x are
  // left there for backward, and the inverse of their scale in the last row; without it, backward casts x
  // again.
  void forward(const Tensor& y, const Tensor& x, const Tensor& codes, const Tensor& w,
               const LinearTerms& terms, const Fp8Context& ctx) const;
  // dw (out, in) = dyᵀ · x, or +=, unless it is absent; then dx (N, in) = dy (N, out) · w. dx may alias x.
  // With codes, of x only the shape is used. REQUIRES: the last forward with these codes or, without them, of
  // this linear had the same x and w. A device uses the scales that it computed there again.
  void backward(const Tensor& dx, const WeightGradient& dw, const Tensor& dy, const Tensor& x,
                const Tensor& codes, const Tensor& w, const Fp8Context& ctx) const;
  // Casts w for all micro-batches of a step, if the state holds its codes. w must not change until the next
  // call.
  void cast_weight(const Tensor& w, const Fp8Context& ctx) const;
  // True if all elements of a tensor share a scale, so that both layouts have the same codes.
  bool has_one_scale() const { return recipe == Fp8Recipe::kTensorwise || recipe == Fp8Recipe::kDelayed; }
  // Measure the scratch of forward, and of the two products of backward; kNone needs none.
  void plan_forward(Arena& arena, int64_t N, int64_t out, int64_t in) const;
  void plan_backward(Arena& arena, int64_t N, int64_t out, int64_t in, bool has_dw = true) const;
};

}  // namespace ingot
