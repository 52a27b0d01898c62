// The context that every layer receives, and the two building blocks of all layers: Linear and Norm.
//
// The scratch of a forward or backward pass is a struct of tensors, and one function lays it out on an arena.
// The pass calls this function on the scratch arena. The layer's plan_forward and plan_backward call it on a
// measuring arena, in the same order and with the same ScratchScopes, so the arena's peak is the size of the
// scratch. In these structs, a tensor that the call does not need is empty.
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
#include "ingot/nn/tensor_parallel.h"

namespace ingot {

// The dropout of a micro-batch; p = 0 outside training.
struct DropoutState {
  float p = 0;
  uint64_t seed = 0, step = 0;
  int64_t first_row = 0;  // index of the micro-batch's first token in the global batch
  Tensor place = {};      // ops/dropout.h; with it, step and first_row are 0
};

// REQUIRES: everything but dropout outlives the call.
struct LayerContext {
  ParamStore& params;
  Region& region;
  Arena& scratch;  // layers allocate from it and release everything before they return
  Stream& stream;
  DropoutState dropout;
  Fp8State* fp8 = nullptr;  // for training; null in evaluation and generation, which do not use FP8
  // Products write the gradients of the unit's weights instead of adding to them (Transformer::open_gradients).
  bool overwrites_gradients = false;
};

// Dropout sites of the model: 0 is the embedding, 2 l + 1 and 2 l + 2 are the outputs of block l's
// attention and MLP, kAttentionSites + l its attention probabilities.
inline constexpr uint32_t kAttentionSites = 1u << 16;
RandomKey dropout_key(const DropoutState& state, uint32_t site);

// y = dropout(y) in place at a site. y (n, C) holds the micro-batch's tokens from first_row on.
void apply_dropout(LayerContext& ctx, const Tensor& y, uint32_t site, int64_t first_row);
// Returns the gradient with respect to the input of that dropout: `buffer`, or d itself if p is 0.
Tensor dropout_gradient(LayerContext& ctx, const Tensor& buffer, const Tensor& d, uint32_t site,
                        int64_t first_row);

// Returns the tensor of a saved activation by its place: a new one (kOwn), `shared` (kShared) or an
// empty one (kNone).
Tensor place_tensor(Arena& arena, Place place, DType dtype, const Shape& shape, const Tensor& shared);

// Releases what was allocated from an arena since the scope began.
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

// Allocates the rows (N, C) of all N tokens. Returns an empty tensor if this rank's own n rows are all rows.
Tensor alloc_all_rows(Arena& arena, DType dtype, int64_t n, int64_t N, int64_t C);
// Allocates scratch for sums over the rows of tensors with C columns in total (ops/row_sum.h).
Tensor alloc_sums(Arena& arena, int64_t C);

// Returns where a product writes the gradient of a weight of this rank.
WeightGradient weight_gradient(LayerContext& ctx, int id);

// Returns the tensor into which to accumulate the gradient of a parameter that all ranks hold: the gradient
// itself or, unless it is empty, `partial`, which this function zeroes. A partial gradient covers only this
// rank's tokens; add_partial_gradient sums it over the ranks and adds it to the gradient. Empty if id < 0.
Tensor partial_gradient(LayerContext& ctx, int id, const Tensor& partial);
void add_partial_gradient(LayerContext& ctx, int id, const Tensor& gradient);

// y (N, out) = x (N, in) · wᵀ with the weight `id`, which may be 8-bit codes in generation.
void multiply_by_weight(LayerContext& ctx, const Tensor& y, const Tensor& x, int id);

// The dim of a linear's weight that is sharded over the tensor-parallel ranks.
enum class Split { kOutputs, kInputs };

struct LinearSpec {
  int unit = 0;
  std::string prefix = {};
  int64_t out = 0, in = 0;  // dims of the logical weight; fused_rows are in its rows too
  Split split = Split::kOutputs;
  std::vector<int64_t> fused_rows = {};  // rows of each fused matrix, each sharded by itself; empty: one
  int64_t least_rows = 1;                // outputs that stay together on a rank: those of a head
  Init init = Init::kNormal;
  double std = 0;
  bool has_bias = false;
  bool is_bias_activated = false;  // the activation adds the bias to forward's y and accumulates its gradient
};

// y (N, out) = x (N, in) · wᵀ + b, where out or in is this rank's slice.
class Linear {
 public:
  Linear() = default;
  // Declares prefix.weight (out, in) and, with has_bias, prefix.bias (out), which starts at zero.
  Linear(ParamList& params, const LinearSpec& spec, const TensorParallel& tp);

  // y = x · wᵀ; with Split::kInputs this is the rank's term of the sum over ranks. The bias is added by
  // add_bias or fused into the next op. codes: make_codes returned it, or empty. With base (N, out), which y must not
  // alias, y = base + x · wᵀ. REQUIRES: base is empty unless adds_base(ctx).
  void forward(LayerContext& ctx, const Tensor& y, const Tensor& x, const Tensor& codes = {},
               const Tensor& base = {}) const;
  // True if the device's product can add to another tensor.
  bool adds_base(const LayerContext& ctx) const { return can_fuse(ctx.stream.device); }
  // y += b. y may hold the rows of any tokens.
  void add_bias(LayerContext& ctx, const Tensor& y) const;
  // dw += dyᵀ · x, then dx = dy · w; dx may alias x. With Split::kOutputs, dx is the rank's term of the sum over
  // ranks. REQUIRES with FP8: the last forward had the same x and codes (Fp8Linear::backward).
  void backward(LayerContext& ctx, const Tensor& dx, const Tensor& dy, const Tensor& x,
                const Tensor& codes = {}) const;
  // db += column sums of dy, which has the same rows as the y of add_bias. Raises dy.amax (with_dy_amax) if dy has one;
  // after backward it must not.
  void backward_bias(LayerContext& ctx, const Tensor& dy) const;

  // True if the device fuses bias and activation into its products (ops/linear_fused.h). forward then also adds the bias,
  // with FP8 too, and backward also accumulates its gradient, and add_bias and backward_bias do nothing, unless the
  // activation adds the bias.
  bool is_fused(const LayerContext& ctx) const { return can_fuse(ctx.stream.device) && !is_fp8(ctx); }
  // The next three are for a bias that is added by a GELU (kGeluTanh). REQUIRES: is_fused(ctx), a bias.
  //   act (N, out) = gelu(pre), pre = x · wᵀ + b
  void forward_gelu(LayerContext& ctx, const Tensor& act, const Tensor& pre, const Tensor& x) const;
  //   dw += dyᵀ · x, db += column sums of dy, then dx = dy · w; dx may alias x
  void backward_with_bias(LayerContext& ctx, const Tensor& dx, const Tensor& dy, const Tensor& x) const;
  // dw += dyᵀ · x, then d_pre = (dy · w) gelu'(pre), where x and pre are the act and pre of the linear before this
  // one. REQUIRES: is_fused(ctx).
  void backward_gelu(LayerContext& ctx, const Tensor& d_pre, const Tensor& dy, const Tensor& x,
                     const Tensor& pre) const;

  // Return x, or dy, with a place for the amax that the op which writes it raises for the linear's FP8 cast
  // (Fp8Linear::with_x_amax); the tensor as it is if the cast takes none or ranks share the tensor.
  Tensor with_x_amax(const LayerContext& ctx, const Tensor& x) const {
    return takes_amax(ctx) ? fp8_.with_x_amax(x, *ctx.fp8) : x;
  }
  Tensor with_dy_amax(const LayerContext& ctx, const Tensor& dy) const {
    return takes_amax(ctx) ? fp8_.with_dy_amax(dy, *ctx.fp8) : dy;
  }

  // Makes the linear train in FP8 if the config converts it, and appends the names of its
  // tensors to `tensors`.
  void use_fp8(const ParamList& params, const Fp8LinearConfig& config, std::vector<std::string>& tensors);
  // Returns memory for the codes that a forward pass in FP8 leaves for backward (Fp8Linear::make_codes).
  Tensor make_codes(Arena& arena, int64_t N) const { return fp8_.make_codes(arena, N, in_); }
  // True if backward reads only the codes of x, and not x itself.
  bool has_codes(const LayerContext& ctx, const Tensor& codes) const { return codes && is_fp8(ctx); }
  // Casts the weight to FP8 for all micro-batches of a step (Fp8Linear::cast_weight).
  void cast_weight(LayerContext& ctx) const;
  // Appends the weight if a device may hold its codes.
  void add_fp8_weight(std::vector<Fp8State::Weight>& weights) const;
  // Measure the scratch for N rows. FP8 is used in training only.
  void plan_forward(Arena& arena, int64_t N, DType compute, bool is_training) const;
  void plan_backward(Arena& arena, int64_t N) const;

  int bias_id() const { return bias_; }

 private:
  // Scratch of the two functions that accumulate the bias's gradient.
  struct BiasScratch {
    Tensor partial;  // (out) f32
    Tensor sums;     // alloc_sums() returned it
  };
  BiasScratch bias_scratch(Arena& arena) const;
  void backward_weight(LayerContext& ctx, const Tensor& dy, const Tensor& x, bool has_bias) const;
  // Allocates the copy (out) of the bias in the dtype of the product into which it is fused.
  Tensor fused_bias(Arena& arena, DType dtype) const { return arena.alloc(dtype, {out_}); }

  bool can_fuse(Device device) const { return device == Device::kCuda && tp_.count == 1; }
  bool takes_amax(const LayerContext& ctx) const { return can_fuse(ctx.stream.device) && is_fp8(ctx); }
  bool is_fp8(const LayerContext& ctx) const { return ctx.fp8 && fp8_.recipe != Fp8Recipe::kNone; }
  // True if the product of forward adds the bias, and if the products of backward sum its gradient.
  bool adds_bias(const LayerContext& ctx) const {
    return bias_ >= 0 && !is_bias_activated_ && can_fuse(ctx.stream.device);
  }
  bool sums_bias(const LayerContext& ctx) const { return adds_bias(ctx) && !is_fp8(ctx); }

  int weight_ = -1, bias_ = -1;
  bool is_bias_activated_ = false;
  int64_t out_ = 0, in_ = 0;  // on this rank
  Split split_ = Split::kOutputs;
  TensorParallel tp_;
  Fp8Linear fp8_;
};

// The residual stream between the halves of blocks: base + delta, which the next norm adds up, or base alone if delta is
// empty.
struct ResidualStream {
  Tensor base, delta;  // (n, C)
};

// Where a half of a block puts its result (n, C). delta may be the memory of the delta that the half receives.
struct ResidualMemory {
  Tensor delta;     // the half's own output
  Tensor sum = {};  // the next norm's input; empty: the half's output stays apart
};

// Returns true if the last product of a half of a block computes to.sum itself: base + its output, rounded once.
bool sums_in_product(const LayerContext& ctx, const ResidualMemory& to, const Linear& last,
                     bool is_norm_after);

// sum = base + delta. REQUIRES: if delta is empty, sum is base.
void add_delta(LayerContext& ctx, const Tensor& sum, const ResidualStream& residual);

// Statistics of the rows that a norm has seen; mean is empty for RMSNorm.
struct NormStats {
  Tensor mean, rstd;  // (n) f32
};

// LayerNorm, RMSNorm or weightless RMSNorm over the residual stream.
class Norm {
 public:
  Norm() = default;
  Norm(ParamList& params, int unit, const std::string& prefix, const ModelConfig& config,
       const TensorParallel& tp);

  NormStats make_stats(Arena& arena, int64_t n) const;
  // sum = base + delta, h = norm(sum). Raises h.amax. REQUIRES: if delta is empty, sum is base.
  void forward(LayerContext& ctx, const Tensor& h, const NormStats& stats, const Tensor& sum,
               const ResidualStream& residual) const;
  // d (n, C) = d_residual + the gradient of the norm at x, given dh; an empty d_residual counts as zero. d
  // may alias dh or d_residual. Raises d.amax.
  void backward(LayerContext& ctx, const Tensor& d, const Tensor& dh, const Tensor& x, const NormStats& stats,
                const Tensor& d_residual) const;

  // Measures the scratch; forward needs none.
  void plan_backward(Arena& arena) const;

 private:
  struct BackwardScratch {
    Tensor dw, db;  // (C) f32, if the gradients are partial
    Tensor sums;    // alloc_sums() returned it
  };
  BackwardScratch backward_scratch(Arena& arena) const;

  NormKind kind_ = NormKind::kRmsNorm;
  int64_t C_ = 0;
  float eps_ = 0;
  bool has_partial_gradients_ = false;
  int weight_ = -1, bias_ = -1;
};

}  // namespace ingot
