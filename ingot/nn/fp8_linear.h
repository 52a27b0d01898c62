// The products of a linear layer in FP8: which tensors are rounded to which 8-bit float, and with what
// scales. Values stay in the compute dtype between layers; a product rounds its operands when it begins,
// multiplies the rounded values exactly and sums in f32 (ops/cast_fp8.h).
//
//   recipe            y = x wᵀ              dx = dy w              dw += dyᵀ x
//   kTensorwise       x, w e4m3             dy e5m2, w e4m3        dy e5m2, x e4m3      scale: max / amax
//   kDelayed          the same, but max / (largest amax of the last steps) / 2^margin
//   kRowwise          x, w e4m3             dy, w e4m3             dy, x e4m3           powers of two
//   kRowwiseGwHp      x, w e4m3 rowwise     dy rowwise, w whole    dy, x not rounded    powers of two
//
// Rowwise means one scale for every line along the dim that the product sums over, so one tensor is rounded
// twice, along its rows and along its columns. (Micikevicius et al. 2022, arXiv:2209.05433; the recipes after
// torchao's.)
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ingot/core/arena.h"
#include "ingot/core/stream.h"
#include "ingot/core/tensor.h"
#include "ingot/nn/fp8_state.h"
#include "ingot/nn/region.h"

namespace ingot {

enum class Fp8Recipe { kNone, kTensorwise, kRowwise, kRowwiseGwHp, kDelayed };

struct Fp8LinearConfig {
  Fp8Recipe recipe = Fp8Recipe::kNone;
  std::vector<std::string> layers =
      {};                     // name patterns with * ("blocks.*.mlp.*"); empty: every linear of the blocks
  int64_t amax_history = 16;  // kDelayed: steps looked back on
  int64_t margin = 0;         // kDelayed: octaves left above the largest amax

  // Throws a kUsage error that names the key, the rule and the value.
  void validate() const;
  // The same unless `ranks` tensor-parallel ranks can give every scale of the recipe its one-rank value.
  void validate_share(int ranks) const;
  // Whether the linear `name` (out, in) is converted: a pattern matches, and both dims are multiples of 16.
  bool converts(const std::string& name, int64_t out, int64_t in) const;
};

// Whether the text matches the pattern, in which * stands for any characters.
bool matches_pattern(std::string_view text, std::string_view pattern);

// One converted linear: its recipe, and where its tensors x, w, dy stand in the Fp8State. Where ranks share
// the linear they share w and one of x and dy; a scale is then that of the whole tensor (region's max).
struct Fp8Linear {
  Fp8Recipe recipe = Fp8Recipe::kNone;
  int first_tensor = 0;
  bool splits_x = false, splits_dy = false;
  bool splits_w() const { return splits_x || splits_dy; }

  // y (N, out) = x (N, in) · w (out, in)ᵀ
  void forward(const Tensor& y, const Tensor& x, const Tensor& w, Fp8State& state, Arena& scratch,
               Region& region, Stream& stream) const;
  // dx (N, in) = dy (N, out) · w
  void backward_input(const Tensor& dx, const Tensor& dy, const Tensor& w, Fp8State& state, Arena& scratch,
                      Region& region, Stream& stream) const;
  // dw (out, in) f32 += dyᵀ · x
  void backward_weight(const Tensor& dw, const Tensor& dy, const Tensor& x, Fp8State& state, Arena& scratch,
                       Region& region, Stream& stream) const;
  // The scratch that these take, on a measuring arena.
  static void plan(Arena& arena, int64_t N, int64_t out, int64_t in);
};

}  // namespace ingot
