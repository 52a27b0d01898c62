// What every layer of the model is given, and the two things that all of them are made of: linears and norms.
#pragma once

#include "ingot/core/arena.h"
#include "ingot/core/philox.h"
#include "ingot/core/stream.h"
#include "ingot/core/tensor.h"
#include "ingot/nn/config.h"
#include "ingot/nn/fp8_linear.h"
#include "ingot/nn/fp8_state.h"
#include "ingot/nn/param_store.h"
#include "ingot/nn/recompute.h"
#include "ingot/nn/region.h"

namespace ingot {

// Dropout of this micro-batch; p = 0 outside training.
struct DropoutState {
  float p = 0;
  uint64_t seed = 0, step = 0;
  int64_t first_row = 0;  // index of the micro-batch's first token in the global batch
};

// REQUIRES: all but dropout outlive the call.
struct LayerContext {
  ParamStore& params;
  Region& region;
  Arena& scratch;  // layers allocate from it and release what they took before they return
  Stream& stream;
  DropoutState dropout;
  Fp8State* fp8 = nullptr;  // of training; null (evaluation, generation): linears are not in FP8
};

// Sites of dropout in the model: 0 the embedding, 2 l + 1 and 2 l + 2 what block l's attention and MLP add to
// the residual stream, kAttentionSites + l its attention probabilities.
inline constexpr uint32_t kAttentionSites = 1u << 16;
RandomKey dropout_key(const DropoutState& state, uint32_t site);

// y = dropout(y) in place at a site.
void apply_dropout(LayerContext& ctx, const Tensor& y, uint32_t site);
// The gradient before that dropout: in `buffer`, or d itself where nothing is dropped.
Tensor dropout_gradient(LayerContext& ctx, const Tensor& buffer, const Tensor& d, uint32_t site);

// A tensor of saved activations where it belongs: new, that of `shared`, or absent.
Tensor place_tensor(Arena& arena, Place place, DType dtype, const Shape& shape, const Tensor& shared);

// Returns an arena to where it was.
class ScratchScope {
 public:
  explicit ScratchScope(Arena& arena) : arena_(arena), mark_(arena.mark()) {}
  ~ScratchScope() { arena_.release_to(mark_); }
  ScratchScope(const ScratchScope&) = delete;
  ScratchScope& operator=(const ScratchScope&) = delete;

 private:
  Arena& arena_;
  Arena::Mark mark_;
};

// y (N, out) = x (N, in) · wᵀ + b.
class Linear {
 public:
  Linear() = default;
  // Declares prefix.weight (out, in) and, with has_bias, prefix.bias (out) zero.
  Linear(ParamList& params, int unit, const std::string& prefix, int64_t out, int64_t in, Init init,
         double std, bool has_bias);

  // Without the bias where adds_bias is false (it is fused into what follows).
  void forward(LayerContext& ctx, const Tensor& y, const Tensor& x, bool adds_bias = true) const;
  // dw += dyᵀ · x; db += column sums of dy, unless whatever adds the bias sums them too (adds_bias false).
  void backward_weight(LayerContext& ctx, const Tensor& dy, const Tensor& x, bool adds_bias = true) const;
  // dx = dy · w
  void backward_input(LayerContext& ctx, const Tensor& dx, const Tensor& dy) const;

  // Trains in FP8 from now on if the config converts this linear; its tensors are appended to `tensors`.
  void use_fp8(const ParamList& params, const Fp8LinearConfig& config, std::vector<std::string>& tensors);
  // The scratch that the products take in FP8, on a measuring arena.
  void plan(Arena& arena, int64_t N) const;

  int weight_id() const { return weight_; }
  int bias_id() const { return bias_; }

 private:
  bool is_fp8(const LayerContext& ctx) const { return ctx.fp8 && fp8_.recipe != Fp8Recipe::kNone; }

  int weight_ = -1, bias_ = -1;
  int64_t out_ = 0, in_ = 0;
  Fp8Linear fp8_;
};

// Statistics of the rows of one norm; mean is absent for RMSNorm.
struct NormStats {
  Tensor mean, rstd;  // (N) f32
};

// LayerNorm, RMSNorm or weightless RMSNorm over the residual stream.
class Norm {
 public:
  Norm() = default;
  Norm(ParamList& params, int unit, const std::string& prefix, const ModelConfig& config);

  NormStats make_stats(Arena& arena, int64_t N) const;
  // sum = base + delta, h = norm(sum). With delta absent, sum must be base itself.
  void forward(LayerContext& ctx, const Tensor& h, const NormStats& stats, const Tensor& sum,
               const Tensor& base, const Tensor& delta) const;
  // d = d_residual (absent: nothing) + gradient of the norm at x, given dh. d may be dh or d_residual. (N, C)
  void backward(LayerContext& ctx, const Tensor& d, const Tensor& dh, const Tensor& x, const NormStats& stats,
                const Tensor& d_residual) const;

 private:
  NormKind kind_ = NormKind::kRmsNorm;
  float eps_ = 0;
  int weight_ = -1, bias_ = -1;
};

}  // namespace ingot
