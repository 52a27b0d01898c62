// The model: embedding, blocks of attention and feed-forward, final norm and head. Hand-written forward and
// backward; all activations lie in a Saved that the caller owns.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "ingot/nn/attention_layer.h"
#include "ingot/nn/config.h"
#include "ingot/nn/layer.h"
#include "ingot/nn/loss_head.h"
#include "ingot/nn/mlp_layer.h"
#include "ingot/nn/param_store.h"
#include "ingot/ops/embedding.h"
#include "ingot/ops/loss_sums.h"

namespace ingot {

// One micro-batch, on the device of the stream. N = B*T.
struct MicroBatch {
  Tensor tokens;     // (B, T) i32
  Tensor targets;    // (B, T) i32, kIgnoreIndex where nothing is predicted
  Tensor doc_start;  // (B, T) i32: where in the row the token's document begins; absent: one document
};

// Sums over the counted tokens of a micro-batch.
struct LossSums {
  double loss = 0;  // nats
  int64_t counted = 0, correct = 0;
  int64_t head_tiles = 0, head_filtered = 0;  // of a head that computes its logits again
  RawLoss raw;                                // of the tokens that were checked

  void add(const LossSums& other);
};

// What a Saved's sums say, of a tensor that the host can read; without what the host counts (the head's
// tiles).
LossSums read_sums(const Tensor& sums);

// Consecutive units of a model, a pipeline stage: 0 the embedding, 1 .. layers the blocks, layers + 1 the
// head.
struct UnitRange {
  int first = 0, end = 0;
};

class Transformer {
 public:
  // What backward needs of forward, for B sequences of T tokens, and where it lies. n: this rank's rows of
  // the residual stream, N unless tensor-parallel ranks split the tokens.
  struct Saved {
    int64_t B = 0, T = 0;
    UnitRange units;                               // that forward and backward are of
    RecomputePlan plan;                            // of its blocks
    std::vector<AttentionLayer::Saved> attention;  // per block
    std::vector<MlpLayer::Saved> mlp;              // per block
    Tensor x;  // (n, C) input of the final norm, or what the units give on
    NormStats norm;
    Tensor d;           // (n, C) gradient of the residual stream, from the head (or what comes back) down
    Tensor losses;      // (N) f32
    Tensor is_correct;  // (N) u8
    Tensor sums;        // (1 + kCheckSums, kLossTotalsBytes) u8
  };

  // config must be resolved, its vocab set. share: of tensor-parallel ranks, all of which call forward,
  // backward and infer alike, with one batch and a Region that joins them; every rank gets all losses and
  // logits.
  Transformer(const ModelConfig& config, DType compute, const HeadConfig& head = {},
              const Fp8LinearConfig& fp8 = {}, const TensorShare& share = {});

  const ModelConfig& config() const { return config_; }
  const TensorShare& share() const { return share_; }
  const ParamList& params() const { return params_; }
  DType compute() const { return compute_; }

  // Activations of a micro-batch (on a measuring arena: their size), by the default RecomputeConfig or a
  // plan. REQUIRES: ranks that split the tokens divide B*T, unless the plan is forward-only.
  Saved make_saved(Arena& arena, int64_t B, int64_t T) const;
  Saved make_saved(Arena& arena, int64_t B, int64_t T, const RecomputePlan& plan) const;
  // Of some units; the plan is of their blocks alone.
  Saved make_saved(Arena& arena, int64_t B, int64_t T, const RecomputePlan& plan, UnitRange units) const;
  UnitRange all_units() const { return {0, head_unit() + 1}; }
  // Scratch bytes of forward and, when training, backward.
  size_t scratch_bytes(int64_t B, int64_t T, bool is_training, Device device = Device::kCpu) const;
  // Brings what the model itself keeps (the rotary table) to the stream's device. REQUIRED before it runs
  // there.
  void bring_to_device(Stream& stream);

  // Losses of the batch under the weights. With grad_scale != 0 also the head's gradients of
  // grad_scale * (sum of losses), and saved.d, from which backward goes on. checked_tokens > 0: so many
  // losses are computed once more in f32. On a CUDA stream the sums of losses are not known when it returns
  // and are 0 in the result; saved.sums has them (read_sums).
  //
  // Of units without the embedding, forward goes on from stage_input (the x of the units before) and backward
  // leaves its gradient in saved.d; of units without the head, forward ends with saved.x, gives no losses,
  // and backward goes on from the gradient of that in saved.d.
  LossSums forward(LayerContext& ctx, const MicroBatch& batch, Saved& saved, float grad_scale,
                   int64_t checked_tokens = 0) const;
  // Adds the gradients of all other parameters, computing again what saved.plan says. REQUIRES: forward with
  // grad_scale != 0 on this saved, with the same dropout; the plan is not forward-only.
  void backward(LayerContext& ctx, const MicroBatch& batch, Saved& saved) const;

  const Tensor& stage_input(const Saved& saved) const {
    return saved.attention.empty() ? saved.x : saved.attention.front().x;
  }

  // Times of block 0's parts and of the embedding for B sequences of T tokens, each the median of three on
  // memory of its own, by the clock of the stream's device. REQUIRES: the weights' memory has been written;
  // bring_to_device.
  BlockTimes time_block(ParamStore& params, int64_t B, int64_t T, Stream& stream) const;

  // Tokens of one chunk of the head, of a micro-batch of N.
  int64_t head_chunk(int64_t N, Device device = Device::kCpu) const { return head_.chunk(N, device); }
  // Names of the tensors that training casts to FP8, in the order of LayerContext::fp8.
  const std::vector<std::string>& fp8_tensors() const { return fp8_tensors_; }

  // Generation: appends tokens (n) i32 of one sequence to the caches, one per block, and writes the capped
  // logits (Vp) f32 of the last one; columns from config().vocab up mean nothing.
  std::vector<KvCache> make_caches(Arena& arena, int64_t positions) const;
  void infer(LayerContext& ctx, const Tensor& tokens, std::vector<KvCache>& caches,
             const Tensor& logits) const;
  // Of some units, the caches' lengths left as they are. Without the embedding it goes on from x, without the
  // head it leaves in x what the units give, and no logits. x (n, C) compute dtype: this rank's rows.
  void infer_units(LayerContext& ctx, const Tensor& tokens, UnitRange units, const Tensor& x,
                   std::vector<KvCache>& caches, const Tensor& logits) const;
  size_t infer_scratch_bytes(int64_t n, int64_t positions) const;

 private:
  struct Block {
    AttentionLayer attention;
    MlpLayer mlp;
  };
  int embedding_unit() const { return 0; }
  int block_unit(size_t l) const { return static_cast<int>(l) + 1; }
  int head_unit() const { return static_cast<int>(blocks_.size()) + 1; }
  int head_weight() const { return lm_head_ >= 0 ? lm_head_ : wte_; }
  bool has_embedding(UnitRange units) const { return units.first == embedding_unit(); }
  bool has_head(UnitRange units) const { return units.end == head_unit() + 1; }
  // The model's number of the first block, and how many there are.
  static size_t first_block(UnitRange units) { return static_cast<size_t>(std::max(units.first, 1) - 1); }
  size_t block_count(UnitRange units) const {
    return static_cast<size_t>(std::min(units.end, head_unit()) - 1) - first_block(units);
  }
  const Block& block(const Saved& saved, size_t i) const { return blocks_[first_block(saved.units) + i]; }

  // The rows of a (Vp, C) table that are here.
  TablePart table_part(const Tensor& rows) const { return {rows, share_.first(vocab_rows()), vocab_rows()}; }
  const Tensor& rope_table_on(const Stream& stream) const {
    return stream.device == Device::kCuda ? device_rope_table_ : rope_table_;
  }
  int64_t vocab_rows() const { return config_.vocab_padded(); }
  ParamSpec table_spec(const char* name, Role role, int unit) const;

  // x (n, C) = dropout(embedding of the tokens), the first block's input.
  void embed(LayerContext& ctx, const Tensor& tokens, const Tensor& x, int64_t first_position) const;
  // Of saved's blocks [begin, end) once more, as far as memory of theirs has been overwritten.
  void recompute(LayerContext& ctx, const MicroBatch& batch, const Saved& saved, size_t begin,
                 size_t end) const;
  // h (n, C): the final norm's result; of units without the head, scratch.
  void run_units(LayerContext& ctx, const Tensor& tokens, const Tensor& doc_start, Saved& saved,
                 const Tensor& h, std::vector<KvCache>* caches) const;

  ModelConfig config_;
  DType compute_;
  TensorShare share_;
  ParamList params_;
  int wte_ = -1, wpe_ = -1, lm_head_ = -1;
  std::vector<Block> blocks_;
  Norm final_norm_;
  LossHead head_;
  std::vector<std::string> fp8_tensors_;
  std::vector<float> rope_;  // (context, D); empty without rotary positions
  Tensor rope_table_;
  std::optional<Arena> device_tables_;
  Tensor device_rope_table_;
};

}  // namespace ingot
