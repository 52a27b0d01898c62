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
#include "ingot/nn/tensor_share.h"

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

// y = dropout(y) in place at a site. y (n, C): of the micro-batch's tokens those from first_row on.
void apply_dropout(LayerContext& ctx, const Tensor& y, uint32_t site, int64_t first_row);
// The gradient before that dropout: in `buffer`, or d itself where nothing is dropped.
Tensor dropout_gradient(LayerContext& ctx, const Tensor& buffer, const Tensor& d, uint32_t site,
                        int64_t first_row);

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

// Where the rows of all N tokens are put together: `own` (n, C) itself if it has them, else new (N, C)
// scratch.
Tensor all_rows(Arena& scratch, const Tensor& own, int64_t N);
// The same on a measuring arena.
void plan_all_rows(Arena& arena, DType dtype, int64_t n, int64_t N, int64_t C);

// Scratch for sums over rows of C columns in all (ops/row_sum.h), and the same on a measuring arena.
Tensor sums_scratch(LayerContext& ctx, int64_t C);
void plan_sums(Arena& arena, int64_t C);

// The gradient of a parameter that all ranks have: itself, or where it is partial (of this rank's tokens)
// zeroed scratch, which add_partial_gradient adds up over the ranks and then to it. id < 0: absent.
Tensor partial_gradient(LayerContext& ctx, int id, bool is_partial);
void add_partial_gradient(LayerContext& ctx, int id, const Tensor& gradient);

// Which dim of a linear's weight tensor-parallel ranks share.
enum class Split { kOutputs, kInputs };

struct LinearSpec {
  int unit = 0;
  std::string prefix = {};
  int64_t out = 0, in = 0;  // of the logical weight, like row_parts
  Split split = Split::kOutputs;
  std::vector<int64_t> row_parts = {};  // matrices that lie in one, each shared by itself; empty: one
  Init init = Init::kNormal;
  double std = 0;
  bool has_bias = false;
  bool is_bias_activated = false;  // an activation adds it to what forward gives, and adds up its gradient
};

// y (N, out) = x (N, in) · wᵀ + b, with out or in this rank's part.
class Linear {
 public:
  Linear() = default;
  // Declares prefix.weight (out, in) and, with has_bias, prefix.bias (out) zero.
  Linear(ParamList& params, const LinearSpec& spec, const TensorShare& share);

  // y = x · wᵀ; of split inputs this rank's part of that sum. The bias is added by add_bias, or fused into
  // what follows.
  void forward(LayerContext& ctx, const Tensor& y, const Tensor& x) const;
  // y += b, for the rows of any tokens.
  void add_bias(LayerContext& ctx, const Tensor& y) const;
  // dw += dyᵀ · x
  void backward_weight(LayerContext& ctx, const Tensor& dy, const Tensor& x) const;
  // db += column sums of dy, which has the rows of add_bias's y.
  void backward_bias(LayerContext& ctx, const Tensor& dy) const;
  // dx = dy · w; of split outputs this rank's part of that sum.
  void backward_input(LayerContext& ctx, const Tensor& dx, const Tensor& dy) const;

  // Whether a device's products do what else the linear does (ops/linear_fused.h): forward and
  // backward_weight have then done what add_bias and backward_bias are for.
  bool is_fused(const LayerContext& ctx) const {
    return ctx.stream.device == Device::kCuda && share_.count == 1 && !is_fp8(ctx);
  }
  // With a bias that is activated, by GELU (kGeluTanh). REQUIRES: is_fused(ctx), a bias.
  //   act (N, out) = gelu(pre), pre = x · wᵀ + b
  void forward_gelu(LayerContext& ctx, const Tensor& act, const Tensor& pre, const Tensor& x) const;
  //   dw += dyᵀ · x, db += column sums of dy
  void backward_weight_and_bias(LayerContext& ctx, const Tensor& dy, const Tensor& x) const;
  // d_pre = (dy · w) gelu'(pre), of the linear before this one. REQUIRES: is_fused(ctx).
  void backward_input_gelu(LayerContext& ctx, const Tensor& d_pre, const Tensor& dy, const Tensor& pre) const;

  // Trains in FP8 from now on if the config converts this linear; its tensors are appended to `tensors`.
  void use_fp8(const ParamList& params, const Fp8LinearConfig& config, std::vector<std::string>& tensors);
  // The scratch that the products take in FP8, on a measuring arena.
  void plan(Arena& arena, int64_t N) const;

  int bias_id() const { return bias_; }

 private:
  bool is_fp8(const LayerContext& ctx) const { return ctx.fp8 && fp8_.recipe != Fp8Recipe::kNone; }
  bool fuses_bias(const LayerContext& ctx) const {
    return bias_ >= 0 && !is_bias_activated_ && is_fused(ctx);
  }

  int weight_ = -1, bias_ = -1;
  bool is_bias_activated_ = false;
  int64_t out_ = 0, in_ = 0;  // here
  Split split_ = Split::kOutputs;
  TensorShare share_;
  Fp8Linear fp8_;
};

// Statistics of the rows of one norm; mean is absent for RMSNorm.
struct NormStats {
  Tensor mean, rstd;  // (n) f32
};

// LayerNorm, RMSNorm or weightless RMSNorm over the residual stream.
class Norm {
 public:
  Norm() = default;
  Norm(ParamList& params, int unit, const std::string& prefix, const ModelConfig& config,
       const TensorShare& share);

  NormStats make_stats(Arena& arena, int64_t n) const;
  // sum = base + delta, h = norm(sum). With delta absent, sum must be base itself.
  void forward(LayerContext& ctx, const Tensor& h, const NormStats& stats, const Tensor& sum,
               const Tensor& base, const Tensor& delta) const;
  // d = d_residual (absent: nothing) + gradient of the norm at x, given dh. d may be dh or d_residual. (N, C)
  void backward(LayerContext& ctx, const Tensor& d, const Tensor& dh, const Tensor& x, const NormStats& stats,
                const Tensor& d_residual) const;

  // The scratch that backward takes, on a measuring arena.
  void plan(Arena& arena) const;

 private:
  NormKind kind_ = NormKind::kRmsNorm;
  int64_t C_ = 0;
  float eps_ = 0;
  bool has_partial_gradients_ = false;
  int weight_ = -1, bias_ = -1;
};

}  // namespace ingot
