// The feed-forward half of a block: out = W_down · act(W_up · h), or W_down · (silu(gate) * up) for
// SwiGLU, where h = norm(base + delta). With norms after the halves of a block, h = base + delta and the result is
// norm(out).
#pragma once

#include "ingot/nn/layer.h"

namespace ingot {

class MlpLayer {
 public:
  // What backward needs from forward. N is the number of tokens, n that of this rank's rows of the
  // residual stream; F is this rank's slice of the width.
  struct Saved {
    Tensor x;        // (n, C) residual stream, the norm's input
    NormStats norm;  // statistics of the norm's input: x, or post
    Tensor h;        // (n, C) normalised x; empty: backward recomputes it, or the norm comes after the MLP
    Tensor pre;      // (N, F), for SwiGLU (N, 2F): gate, up. Includes the bias, except where the
                     // activation adds it in an op of its own
    Tensor act;      // (N, F) output of the activation; empty: backward recomputes it
    Tensor post;     // (n, C) W_down's output, if a norm comes after it
    Tensor h_codes = {};    // (C + 1, N) e4m3: FP8 codes of h (Linear::make_codes), or empty
    Tensor act_codes = {};  // (F + 1, N) likewise, of act
  };

  MlpLayer(ParamList& params, int unit, const std::string& prefix, const ModelConfig& config,
           const TensorParallel& tp, int index);

  // Tensors in shared memory are those of `shared`. The caller sets norm, by make_stats.
  Saved make_saved(Arena& arena, int64_t N, DType compute, const MlpPlaces& places,
                   const Saved& shared) const;
  NormStats make_stats(Arena& arena, int64_t N) const { return norm_.make_stats(arena, tp_.rows(N)); }

  // As AttentionLayer::forward; if to.delta is empty, it stops before W_down.
  ResidualStream forward(LayerContext& ctx, const Saved& saved, const ResidualStream& residual,
                         const ResidualMemory& to) const;
  // As the functions of AttentionLayer.
  void backward(LayerContext& ctx, const Saved& saved, const Tensor& dx, const Tensor& d) const;
  Tensor with_d_amax(const LayerContext& ctx, const Tensor& d) const;

  // Computes act (N, hidden()) from pre as forward left it; backward uses it if act was not saved. Raises act.amax.
  void activate(LayerContext& ctx, const Tensor& act, const Tensor& pre) const;
  int64_t hidden() const { return F_; }  // on this rank

  // Makes its linears train in FP8 where the config says so, and appends the names of their
  // tensors to `tensors`.
  void use_fp8(const ParamList& params, const Fp8LinearConfig& config, std::vector<std::string>& tensors);
  // As the functions of Linear, for both linears.
  void cast_weights(LayerContext& ctx) const;
  void add_fp8_weights(std::vector<Fp8State::Weight>& weights) const;

  // Measure the scratch.
  void plan_forward(Arena& arena, int64_t N, DType compute, bool is_training) const;
  void plan_backward(Arena& arena, int64_t N, DType compute) const;

 private:
  struct ForwardScratch {
    Tensor h;        // (n, C) normalised x, unless it is saved
    Tensor post;     // (n, C) W_down's output, if a norm comes after it and it is not saved
    Tensor h_all;    // (N, C) h of all ranks
    Tensor act;      // (N, F) unless it is saved
    Tensor out_all;  // (N, C) this rank's term of W_down's output, for all ranks
  };
  struct BackwardScratch {
    Tensor dh;      // (n, C) gradient of h; before that, the gradient of W_down's output, then h
    Tensor dh_all;  // (N, C) the same for all ranks
    Tensor d_act;   // (N, F) gradient of act; before that, act unless it is saved
    Tensor d_pre;   // like Saved::pre
  };
  // The tensors of `saved` that are not empty need no scratch.
  ForwardScratch forward_scratch(Arena& arena, int64_t N, DType compute, const Saved& saved) const;
  BackwardScratch backward_scratch(Arena& arena, int64_t N, DType compute) const;
  // Scratch for the gradient of the bias that the activation adds.
  Tensor activation_sums(Arena& arena) const { return alloc_sums(arena, F_); }

  bool is_swiglu() const { return kind_ == MlpKind::kSwiglu; }
  // True if the device's products include bias and GELU; pre then includes the bias.
  bool is_fused(const LayerContext& ctx) const {
    return kind_ == MlpKind::kGeluTanh && up_.bias_id() >= 0 && up_.is_fused(ctx) && down_.is_fused(ctx);
  }
  int64_t in_width() const { return is_swiglu() ? 2 * F_ : F_; }
  void backward_activated(LayerContext& ctx, const Tensor& d_pre, const Tensor& d_act, const Tensor& d,
                          const Tensor& act, const Saved& saved) const;

  TensorParallel tp_;
  MlpKind kind_;
  bool is_norm_after_;
  int64_t C_, F_;  // F on this rank
  uint32_t dropout_site_;
  Norm norm_;
  Linear up_, down_;  // up: (F, C), or (2F, C) for SwiGLU
};

}  // namespace ingot
