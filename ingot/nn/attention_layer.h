// The attention half of a block: out = W_o · attention(rope(qk_norm(q, k)), v), where q, k, v are
// projections of h = norm(base + delta). QK-norm may have gains (Qwen3), some blocks may not rotate (SmolLM3),
// and attention may have a window (Mistral). With norms after the halves of a block (OLMo 2), h = base + delta and
// the result is norm(out).
#pragma once

#include "ingot/nn/infer_batch.h"
#include "ingot/nn/layer.h"
#include "ingot/ops/attention.h"
#include "ingot/ops/kv_cache.h"
#include "ingot/ops/qk_norm.h"

namespace ingot {

// The sequences of a cache and the positions of each; none without a cache.
struct CacheShape {
  int64_t slots = 0, positions = 0;
};

// The tokens that a forward pass appends to a block's cache. Both are borrowed.
struct CachedTokens {
  const KvCache& cache;
  const InferBatch& batch;
};

// The documents of a micro-batch; both empty: every row is one document.
struct DocumentMask {
  Tensor starts;      // (B, T) i32: doc_start of ops/attention.h
  Tensor first_rows;  // AttentionConfig::first_rows, or empty
};

class AttentionLayer {
 public:
  // What backward needs from forward. N = B*T; n is the number of this rank's rows of the residual stream;
  // H and K are this rank's heads; Q = (H + 2K) * D.
  struct Saved {
    Tensor x;        // (n, C) residual stream, the norm's input
    NormStats norm;  // statistics of the norm's input: x, or post
    Tensor h;        // (n, C) normalised x; empty: backward recomputes it, or the norm comes after attention
    Tensor qkv;      // (N, Q) q and k as attention sees them: normalised and rotated
    Tensor qk_rstd;  // (norms of N tokens) f32: by token and head or, if norms_rows(), q's before k's; empty
                     // without QK-norm
    // (N * (H + K), D) q and k before QK-norm: by token and head or, if norms_rows(), q before k; empty unless QK-norm has
    // gains or norms_rows()
    Tensor qk_raw;
    Tensor out;             // (N, H*D) output of attention, before W_o
    Tensor lse;             // (B, H, T) f32
    Tensor post;            // (n, C) W_o's output, if a norm comes after it
    Tensor h_codes = {};    // (C + 1, N) e4m3: FP8 codes of h (Linear::make_codes), or empty
    Tensor out_codes = {};  // (H*D + 1, N) likewise, of out
  };

  AttentionLayer(ParamList& params, int unit, const std::string& prefix, const ModelConfig& config,
                 const TensorParallel& tp, int index);

  // Tensors in shared memory are those of `shared`. The caller sets norm, by make_stats.
  Saved make_saved(Arena& arena, int64_t B, int64_t T, DType compute, const AttentionPlaces& places,
                   const Saved& shared) const;
  NormStats make_stats(Arena& arena, int64_t N) const { return norm_.make_stats(arena, tp_.rows(N)); }

  // Sets saved.x to the sum of `residual` (if its delta is empty, saved.x is its base) and returns the residual
  // stream after the layer: saved.x and `to.delta`, or the sum of both in `to.sum`, if the device's product computes it.
  // If to.delta is empty, forward stops before W_o; saved is then complete for backward. rope_table (positions, D) f32
  // or empty; cached is null in training. With it B is 1, T are the rows of its batch, and row t of rope_table belongs
  // to row t.
  ResidualStream forward(LayerContext& ctx, const Saved& saved, const ResidualStream& residual,
                         const ResidualMemory& to, const DocumentMask& documents, const Tensor& rope_table,
                         const CachedTokens* cached) const;
  // dx (n, C) = the gradient of x, given that of (x + out), d. dx is the memory of d. Raises dx.amax.
  void backward(LayerContext& ctx, const Saved& saved, const Tensor& dx, const Tensor& d,
                const DocumentMask& documents, const Tensor& rope_table) const;
  // Returns the d of backward with a place for its amax (Linear::with_dy_amax of W_o), if backward casts d itself.
  Tensor with_d_amax(const LayerContext& ctx, const Tensor& d) const;

  // Plans the scratch of micro-batches with documents from now on.
  void expect_documents() { has_documents_ = true; }

  // Makes its linears train in FP8 where the config says so, and appends the names of their
  // tensors to `tensors`.
  void use_fp8(const ParamList& params, const Fp8LinearConfig& config, std::vector<std::string>& tensors);
  // As the functions of Linear, for both linears.
  void cast_weights(LayerContext& ctx) const;
  void add_fp8_weights(std::vector<Fp8State::Weight>& weights) const;

  // Measure the scratch. caches: the shape of the cache of a pass that appends to one, where B is 1.
  void plan_forward(Arena& arena, int64_t B, int64_t T, DType compute, bool is_training,
                    const CacheShape& caches = {}) const;
  void plan_backward(Arena& arena, int64_t B, int64_t T, DType compute) const;

 private:
  struct ForwardScratch {
    Tensor h;        // (n, C) normalised x, unless it is saved
    Tensor post;     // (n, C) W_o's output, if a norm comes after it and it is not saved
    Tensor h_all;    // (N, C) h of all ranks
    Tensor tiles;    // f32, of attention_forward
    Tensor out_all;  // (N, C) this rank's term of W_o's output, for all ranks
    Tensor normed;   // (N*H, D) normalised q or k, if norms_rows()
  };
  struct BackwardScratch {
    Tensor dh;      // (n, C) gradient of h; before that, the gradient of W_o's output, then h
    Tensor dh_all;  // (N, C) the same for all ranks
    Tensor d_qkv;   // (N, Q)
  };
  // The scratch of backward until the gradients of the heads are known.
  struct HeadsScratch {
    Tensor d_out;  // (N, H*D)
    Tensor tiles;  // f32, of attention_backward
    // If norms_rows():
    Tensor rows;  // (N*H, D) gradient of q or k
    Tensor sums;  // alloc_sums() returned it
    // If heads have gains:
    Tensor partials[2];   // (D) f32 gradients of the gains of this rank's q and k; empty on a single rank
    Tensor gain_scratch;  // qk_norm_gain_backward adds up in it
  };
  // The tensors of `saved` that are not empty need no scratch.
  ForwardScratch forward_scratch(Arena& arena, int64_t N, int64_t tiles, DType compute,
                                 const Saved& saved) const;
  // Returns the f32 elements that attention needs for T rows of a batch over such a cache.
  int64_t cached_tiles(int64_t T, const CacheShape& caches, Device device) const;
  // out (N, H*D) = attention over the cache, which the batch's tokens have been appended to.
  void attend_to_cache(LayerContext& ctx, const Tensor& out, const Tensor& lse, const Tensor& q,
                       const CachedTokens& cached, const Tensor& tiles) const;
  BackwardScratch backward_scratch(Arena& arena, int64_t N, DType compute) const;
  HeadsScratch heads_scratch(Arena& arena, const AttentionShape& shape, DType compute) const;

  struct Heads {
    Tensor q, k, v;  // (B, T, H or K, D) views of one (N, Q) buffer
    Tensor qk;       // (B, T, H + K, D) q and k together
  };
  int64_t qkv_width() const { return (H_ + 2 * K_) * D_; }
  Heads split(const Tensor& qkv, int64_t B, int64_t T) const;
  AttentionConfig config(const LayerContext& ctx, int64_t T, const DocumentMask& documents) const;
  // True if a QK-norm covers all heads together, as a row that is copied from them.
  bool norms_rows() const { return has_qk_norm_ && is_norm_over_width_; }
  // True if QK-norm multiplies the heads by gains in the pass that rotates them.
  bool has_gains_of_heads() const { return q_gain_ >= 0 && !is_norm_over_width_; }
  // Number of norms of a token's queries or keys, which have `heads` heads.
  int64_t norms(int64_t heads) const { return is_norm_over_width_ ? 1 : heads; }
  // Views the heads of N tokens (N * heads, D) as the rows that norms cover (N * norms(heads), ...).
  Tensor norm_rows(const Tensor& rows, int64_t heads) const {
    return rows.reshape({rows.dim(0) / heads * norms(heads), heads / norms(heads) * D_});
  }
  // QK-norm and rotation, in place. An empty table stands for no rotation.
  void rotate(LayerContext& ctx, const Saved& saved, const Heads& heads, const Tensor& rope_table,
              const Tensor& normed) const;
  void rotate_backward(LayerContext& ctx, const Saved& saved, const Heads& d, const Heads& heads,
                       const Tensor& rope_table, const HeadsScratch& scratch) const;
  QkGains gains(LayerContext& ctx) const;
  void rotate_gains_backward(LayerContext& ctx, const Saved& saved, const Heads& d, const Tensor& rope_table,
                             const HeadsScratch& scratch) const;
  // The same for QK-norm on rows: of q with its gain, or of k. raw and rstd are those of Saved.
  void normalise(LayerContext& ctx, const Tensor& x, int gain, const Tensor& raw, const Tensor& rstd,
                 const Tensor& normed) const;
  void normalise_backward(LayerContext& ctx, const Tensor& dx, int gain, const Tensor& raw,
                          const Tensor& rstd, const HeadsScratch& scratch) const;

  TensorParallel tp_;
  int64_t H_, K_, D_, C_;  // H_, K_: heads of this rank
  int64_t window_;
  bool has_documents_ = false;
  bool has_qk_norm_, is_norm_over_width_, is_norm_after_, is_rotary_;
  float scale_;  // factor of the scores q.k
  float eps_;
  uint32_t dropout_site_, probabilities_site_;
  Norm norm_;
  Linear qkv_, proj_;
  int q_gain_ = -1, k_gain_ = -1;  // (D), or (H*D) and (K*D), each
};

}  // namespace ingot
