// Attention and what precedes it: QK-norm and rotation of the heads in qkv (N, (H + 2K) D), a packed buffer
// of queries, keys and values.
#pragma once

#include "ingot/nn/config.h"
#include "ingot/nn/program/builder.h"
#include "ingot/ops/attention.h"

namespace ingot {

// The heads of this rank.
struct HeadsSpec {
  int64_t H = 0, K = 0, D = 0;  // heads of queries, of keys and values, and their width

  int64_t qkv_width() const { return (H + 2 * K) * D; }
};

struct RotationSpec {
  HeadsSpec heads = {};
  bool is_rotary = true;
  bool rotates_all = true;                            // all channels of a head rotate
  bool has_norm = false, is_norm_over_width = false;  // QK-norm, and over all heads together
  float eps = 0;
  int q_gain = -1, k_gain = -1;  // parameters (D) or (H*D), (K*D); -1: none
};

struct AttentionSpec {
  HeadsSpec heads = {};
  float scale = 0;  // factor of the scores
  int64_t window = 0;
  uint32_t dropout_site = 0;
};

// Returns qkv with its queries and keys normalised and rotated, in place; qkv itself if the spec does
// neither.
ValueId rotate(Builder& b, ValueId qkv, const RotationSpec& spec);
// Returns attention's output (N, H*D).
ValueId attention(Builder& b, ValueId qkv, const AttentionSpec& spec);

}  // namespace ingot
