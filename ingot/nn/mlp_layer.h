// The feed-forward half of a block: out = W_down · act(W_up · h), or SwiGLU's W_down · (silu(gate) * up), of
// h = norm(base + delta).
#pragma once

#include "ingot/nn/layer.h"

namespace ingot {

class MlpLayer {
 public:
  // What backward needs of forward. Of N tokens, n are this rank's rows of the residual stream; F is this
  // rank's part of the width.
  struct Saved {
    Tensor x;        // (n, C) the residual stream, normalised input
    NormStats norm;  // of x
    Tensor h;        // (n, C) x normalised; absent: backward normalises again
    Tensor pre;  // (N, F), for SwiGLU (N, 2F): gate, up; without a bias that the activation adds, unless a
                 // device's product has added it
    Tensor act;  // (N, F) the activation's result; absent: backward activates again
  };

  MlpLayer(ParamList& params, int unit, const std::string& prefix, const ModelConfig& config,
           const TensorShare& share, int index);

  // What lies in shared memory is that of `shared`. norm is left to make_stats.
  Saved make_saved(Arena& arena, int64_t N, DType compute, const MlpPlaces& places,
                   const Saved& shared) const;
  NormStats make_stats(Arena& arena, int64_t N) const { return norm_.make_stats(arena, share_.rows(N)); }

  // saved.x = base + delta (delta absent: saved.x is base); out (n, C), which may be delta's memory. With out
  // absent it stops before W_down, all that backward needs being there.
  void forward(LayerContext& ctx, const Saved& saved, const Tensor& out, const Tensor& base,
               const Tensor& delta) const;
  // d (n, C): the gradient of (x + out) becomes that of x.
  void backward(LayerContext& ctx, const Saved& saved, const Tensor& d) const;

  // act (N, hidden()) from pre as forward left it: what backward does where act was not saved.
  void activate(LayerContext& ctx, const Tensor& act, const Tensor& pre) const;
  int64_t hidden() const { return F_; }  // of this rank

  // Trains its linears in FP8 where the config says so; their tensors are appended to `tensors`.
  void use_fp8(const ParamList& params, const Fp8LinearConfig& config, std::vector<std::string>& tensors);

  // The scratch that forward and backward take, on a measuring arena.
  void plan(Arena& arena, int64_t N, DType compute, bool is_training) const;

 private:
  bool is_swiglu() const { return kind_ == MlpKind::kSwiglu; }
  // Whether bias and GELU are part of a device's products, and pre has the bias in it.
  bool is_fused(const LayerContext& ctx) const {
    return kind_ == MlpKind::kGeluTanh && up_.bias_id() >= 0 && up_.is_fused(ctx) && down_.is_fused(ctx);
  }
  int64_t in_width() const { return is_swiglu() ? 2 * F_ : F_; }
  void backward_activated(LayerContext& ctx, const Tensor& d_pre, const Tensor& d_act, const Tensor& d,
                          const Tensor& pre) const;

  TensorShare share_;
  MlpKind kind_;
  int64_t C_, F_;  // F of this rank
  uint32_t dropout_site_;
  Norm norm_;
  Linear up_, down_;  // up: (F, C), for SwiGLU (2F, C)
};

}  // namespace ingot
