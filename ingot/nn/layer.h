// Operations on a model's values share the context of a pass, its scratch, and the ways to read parameters
// and to write their gradients.
#pragma once

#include "ingot/core/arena.h"
#include "ingot/core/philox.h"
#include "ingot/core/stream.h"
#include "ingot/core/tensor.h"
#include "ingot/nn/config.h"
#include "ingot/nn/fp8_state.h"
#include "ingot/nn/param_store.h"
#include "ingot/nn/region.h"
#include "ingot/nn/tensor_parallel.h"
#include "ingot/ops/matmul.h"

namespace ingot {

class CustomLoss;  // custom_loss.h

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
  Arena& scratch;  // a pass allocates from it and releases everything before it returns
  Stream& stream;
  DropoutState dropout;
  Fp8State* fp8 = nullptr;  // for training; null in evaluation and generation, which do not use FP8
  // Attention has this window in place of a larger one of the model; 0: it has the model's.
  int64_t window = 0;
  CustomLoss* loss = nullptr;  // replaces the cross-entropy of the head, if it is set
  // Products write the gradients of the unit's weights instead of adding to them (program/store_calls.cpp).
  bool overwrites_gradients = false;

  LayerContext with_scratch(Arena& other) const {
    return {.params = params,
            .region = region,
            .scratch = other,
            .stream = stream,
            .dropout = dropout,
            .fp8 = fp8,
            .window = window,
            .loss = loss,
            .overwrites_gradients = overwrites_gradients};
  }
};

// Dropout sites of the model: 0 is the embedding, 2 l + 1 and 2 l + 2 are the outputs of block l's
// attention and MLP, kAttentionSites + l its attention probabilities.
inline constexpr uint32_t kAttentionSites = 1u << 16;
RandomKey dropout_key(const DropoutState& state, uint32_t site);

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

// Allocates scratch for sums over the rows of tensors with C columns in total (ops/row_sum.h).
Tensor alloc_sums(Arena& arena, int64_t C);

// Returns where a product writes the gradient of a weight of this rank.
WeightGradient weight_gradient(LayerContext& ctx, int id);

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

}  // namespace ingot
