// Rotary position embedding (RoFormer, Su et al. 2021, arXiv:2104.09864) in LLaMA's half-split layout.
// With R rotated dims, f_i = theta^(-2i/R) and angle = position * f_i,
//   (x[i], x[i + R/2]) <- (x[i] cos - x[i + R/2] sin, x[i + R/2] cos + x[i] sin),  i < R/2;
// dims from R on are unchanged. Row t of x has position t + position_offset.
#pragma once

#include "ingot/core/stream.h"
#include "ingot/core/tensor.h"

namespace ingot {

// Changes of the frequencies for contexts that are longer than those of training.
// kLinear (Chen et al. 2023, arXiv:2306.15595): every f_i is divided by `factor`.
// kLlama3, as in Llama 3.1: the f_i whose wavelength 2 pi / f_i exceeds original_context / low_freq_factor
// are divided by `factor`, those whose wavelength is below original_context / high_freq_factor stay, and
// those between are interpolated. kYarn (Peng et al. 2023, arXiv:2309.00071): the f_i that turn less than
// beta_slow times in original_context are divided by `factor`, those that turn more than beta_fast times
// stay, and those between are interpolated by their index i. The table holds rotations, without YaRN's factor
// of attention.
struct RopeScaling {
  enum class Kind { kNone, kLinear, kLlama3, kYarn };
  Kind kind = Kind::kNone;
  double factor = 8;
  double low_freq_factor = 1, high_freq_factor = 4;  // kLlama3
  double beta_fast = 32, beta_slow = 1;              // kYarn
  double attention_factor = 0;                       // kYarn; 0: 0.1 ln(factor) + 1
  int64_t original_context = 8192;                   // kLlama3, kYarn

  // Returns the factor by which the caller multiplies rotated queries and keys; 1 unless the kind is kYarn.
  double q_and_k_factor() const;
};

// table (T_max, R) f32, R even: row t is cos(t f_0) .. cos(t f_{R/2-1}), sin(t f_0) .. sin(t f_{R/2-1}).
// f_i and the angle are rounded to f32 as in Hugging Face transformers, whose checkpoints were trained
// this way; cos and sin of that angle are computed in double.
void rope_table(const Tensor& table, double theta, const RopeScaling& scaling = {});

// Works in place on x (B,T,H,D), f32, bf16 or f16, strided with the last dim contiguous, R <= D. Raises
// x.amax (Tensor::with_amax). REQUIRES: 0 <= position_offset, position_offset + T <= T_max; R == D if x has
// an amax.
void rope_forward(const Tensor& x, const Tensor& table, int64_t position_offset, Stream& stream);
// Turns dy into dx in place by the inverse rotation; otherwise as rope_forward.
void rope_backward(const Tensor& dy, const Tensor& table, int64_t position_offset, Stream& stream);

}  // namespace ingot
