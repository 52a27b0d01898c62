// The cache of keys and values of several sequences, and attention of single tokens over it, for generation.
//
// Every sequence has a slot of the cache. The place of a token is slot * positions + position, its row in the
// cache; a negative place stands for a row of padding, which belongs to no sequence. Places are (N) i32,
// contiguous.
#pragma once

#include "ingot/core/stream.h"
#include "ingot/core/tensor.h"
#include "ingot/ops/attention.h"

namespace ingot {

// The keys and values that one layer has computed, in the compute dtype.
struct KvCache {
  Tensor k = {}, v = {};  // (slots, positions, K, D), contiguous

  int64_t slots() const { return k.dim(0); }
  int64_t positions() const { return k.dim(1); }
  // The first `length` positions of a slot as (1, length, K, D).
  Tensor keys(int64_t slot, int64_t length) const { return sequence(k, slot, length); }
  Tensor values(int64_t slot, int64_t length) const { return sequence(v, slot, length); }

 private:
  static Tensor sequence(const Tensor& t, int64_t slot, int64_t length) {
    return t.rows(slot, slot + 1)
        .reshape({t.dim(1), t.dim(2), t.dim(3)})
        .rows(0, length)
        .reshape({1, length, t.dim(2), t.dim(3)});
  }
};

// Copies the keys and values of N tokens, views (1, N, K, D) with the last dim contiguous, to their places in
// the cache. Padding is skipped. REQUIRES: the places are distinct, and below slots * positions (checked on
// the CPU only).
void append_to_cache(const KvCache& cache, const Tensor& k, const Tensor& v, const Tensor& places,
                     Stream& stream);

// attention_decode on a device computes this many positions at a time. It does the same work for every
// `longest` between two multiples.
inline constexpr int64_t kDecodeSlice = 128;

// Attention of N tokens, of which token n sees the cached positions of its slot up to its own position p, and
// with a window only the last `window` of them:
//   out[n] = sum_s P[n,s] v[s],   P[n,:] = softmax over the visible s of scale * q[n] . k[s].
// Head h reads kv head h / (H / K); H % K == 0. out of padding is 0. All sums are f32, and their order
// depends on the position only, so a token's result does not depend on the other tokens of the call.
// scratch: f32, contiguous, at least attention_decode_scratch elements.
struct DecodeOperands {
  Tensor out = {}, q = {};  // views (1, N, H, D) with the last dim contiguous; out must not alias q
  KvCache cache = {};
  Tensor places = {};
  int64_t longest = 0;  // above the largest position, at most the cache's positions
};
struct DecodeConfig {
  float scale = 0;     // REQUIRES: > 0
  int64_t window = 0;  // 0: none
};
void attention_decode(const DecodeOperands& t, const DecodeConfig& config, const Tensor& scratch,
                      Stream& stream);

// Returns the f32 elements of scratch for shape.B tokens and shape.S = longest; it grows with both.
int64_t attention_decode_scratch(const AttentionShape& shape, Device device = Device::kCpu);

}  // namespace ingot
