// The model: embedding, blocks of attention and feed-forward, final norm and head. Forward and backward
// are written by hand; all activations lie in a Saved that the caller owns.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
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

// One micro-batch, on the stream's device. N = B*T.
struct MicroBatch {
  Tensor tokens;     // (B, T) i32
  Tensor targets;    // (B, T) i32, kIgnoreIndex where nothing is predicted
  Tensor doc_start;  // (B, T) i32: position in the row where the token's document begins; empty: one document
  Tensor first_rows = {};  // on a device, with doc_start: AttentionConfig::first_rows, or empty

  DocumentMask documents() const { return {doc_start, first_rows}; }
};

// Sums over the counted tokens of a micro-batch.
struct LossSums {
  double loss = 0;  // nats
  int64_t counted = 0, correct = 0;
  int64_t head_tiles = 0, head_filtered = 0;  // tiles of a kRecompute head; those that its filter skipped
  RawLoss raw;                                // loss of the tokens that were checked in f32

  void add(const LossSums& other);
};

// Reads the sums of a Saved from a tensor that the host can read. The head's tiles are not in it; the
// host counts those.
LossSums read_sums(const Tensor& sums);

// Consecutive units of a model, such as a pipeline stage. Unit 0 is the embedding, 1 .. layers are the
// blocks, layers + 1 is the head.
struct UnitRange {
  int first = 0, end = 0;
};

class Transformer {
 public:
  // What backward needs from forward for B sequences of T tokens, and the memory it lies in. n is the
  // number of this rank's rows of the residual stream: N, or N / tp with sequence parallelism.
  struct Saved {
    int64_t B = 0, T = 0;
    UnitRange units;                               // the units that forward and backward run
    RecomputePlan plan;                            // plan of the units' blocks
    std::vector<AttentionLayer::Saved> attention;  // per block
    std::vector<MlpLayer::Saved> mlp;              // per block
    Tensor x;  // (n, C) input of the final norm; without the head, the units' output
    NormStats norm;
    Tensor d;           // (n, C) gradient of the residual stream, updated block by block
    Tensor losses;      // (N) f32
    Tensor is_correct;  // (N) u8
    Tensor sums;        // (1 + kCheckSums, kLossTotalsBytes) u8
  };

  // REQUIRES: config is resolved and its vocab set. tp describes the tensor-parallel ranks, all of which
  // make the same calls of forward, backward and infer, with the same batch and a Region that connects
  // them; every rank gets all losses and logits.
  Transformer(const ModelConfig& config, DType compute, const HeadConfig& head = {},
              const Fp8LinearConfig& fp8 = {}, const TensorParallel& tp = {});

  const ModelConfig& config() const { return config_; }
  const TensorParallel& tp() const { return tp_; }
  const ParamList& params() const { return params_; }
  DType compute() const { return compute_; }

  // Allocates the activations of a micro-batch (on a measuring arena: measures them) for a plan, by
  // default that of RecomputeConfig. REQUIRES: with sequence parallelism, the number of ranks divides B*T,
  // unless the plan is forward-only.
  Saved make_saved(Arena& arena, int64_t B, int64_t T) const;
  Saved make_saved(Arena& arena, int64_t B, int64_t T, const RecomputePlan& plan) const;
  // Does so for some units only; the plan covers only their blocks.
  Saved make_saved(Arena& arena, int64_t B, int64_t T, const RecomputePlan& plan, UnitRange units) const;
  UnitRange all_units() const { return {0, head_unit() + 1}; }
  // The id of the parameter that the head multiplies by: the embedding's if they are tied.
  int head_weight() const { return lm_head_ >= 0 ? lm_head_ : wte_; }
  // Scratch bytes of forward and, if is_training, of backward.
  size_t scratch_bytes(int64_t B, int64_t T, bool is_training, Device device = Device::kCpu) const;
  // Copies the model's own table (of rotary positions) to the stream's device. REQUIRED before the model
  // runs on a CUDA device.
  void bring_to_device(Stream& stream);
  // Tells the model that micro-batches will have documents, which scratch_bytes depends on.
  void expect_documents();

  // Computes the losses of the batch. With grad_scale != 0 it also computes the gradients of grad_scale *
  // (sum of losses) in the head, and saved.d, from which backward continues. With checked_tokens > 0 it
  // computes the losses of that many tokens once more in f32. On a CUDA stream the sums in the result are
  // 0, since they are not known when the call returns; saved.sums holds them (read_sums).
  //
  // If the units lack the embedding, forward starts from stage_input (the output of the units before) and
  // backward leaves the gradient of it in saved.d. If they lack the head, forward ends with saved.x and
  // computes no losses, and backward starts from the gradient of saved.x in saved.d.
  LossSums forward(LayerContext& ctx, const MicroBatch& batch, Saved& saved, float grad_scale,
                   int64_t checked_tokens = 0) const;
  // Adds the gradients of all other parameters, recomputing what saved.plan says. REQUIRES: forward ran
  // with grad_scale != 0 on this saved, with the same dropout; the plan is not forward-only.
  void backward(LayerContext& ctx, const MicroBatch& batch, Saved& saved) const;

  const Tensor& stage_input(const Saved& saved) const {
    return saved.attention.empty() ? saved.x : saved.attention.front().x;
  }

  // Times the ops of block 0 and the embedding for B sequences of T tokens by the clock of the stream's
  // device, each as the median of three runs on memory of its own. REQUIRES: the weights have been
  // written; bring_to_device was called.
  BlockTimes time_block(ParamStore& params, int64_t B, int64_t T, Stream& stream) const;

  // Tokens per chunk of the head for a micro-batch of N tokens.
  int64_t head_chunk(int64_t N, Device device = Device::kCpu) const { return head_.chunk(N, device); }
  // Names of the tensors that training casts to FP8, in the order of LayerContext::fp8.
  const std::vector<std::string>& fp8_tensors() const { return fp8_tensors_; }
  // The weights whose codes ctx.fp8 can hold (Fp8State::hold_weights), and their casts, which precede the
  // micro-batches of every step. cast_weights does nothing for weights that are not held.
  std::vector<Fp8State::Weight> fp8_weights() const;
  void cast_weights(LayerContext& ctx) const;

  // Generation: appends the batch's tokens to the caches, one per block, and writes the logits (output_rows, Vp) f32 of
  // the tokens that want them, uncapped; columns >= config().vocab are undefined. The batch's ids are on the stream's
  // device. REQUIRES: the caches hold every earlier position of its sequences.
  std::vector<KvCache> make_caches(Arena& arena, int64_t slots, int64_t positions) const;
  void infer(LayerContext& ctx, const InferBatch& batch, const std::vector<KvCache>& caches,
             const Tensor& logits) const;
  // Does so for some units. Without the embedding it starts from x; without the head it writes the units' output to
  // x and no logits. x (n, C) in the compute dtype holds this rank's share of the batch's rows.
  void infer_units(LayerContext& ctx, const InferBatch& batch, UnitRange units, const Tensor& x,
                   const std::vector<KvCache>& caches, const Tensor& logits) const;
  // Scratch for batches of up to n rows, all of which may want logits.
  size_t infer_scratch_bytes(int64_t n, const CacheShape& caches, Device device = Device::kCpu) const;
  // Caps logits in host memory, in place.
  void cap_logits(std::span<float> logits) const;

 private:
  struct Block {
    AttentionLayer attention;
    MlpLayer mlp;
  };
  int embedding_unit() const { return 0; }
  int block_unit(size_t l) const { return static_cast<int>(l) + 1; }
  int head_unit() const { return static_cast<int>(blocks_.size()) + 1; }
  bool has_embedding(UnitRange units) const { return units.first == embedding_unit(); }
  bool has_head(UnitRange units) const { return units.end == head_unit() + 1; }
  // The model's index of the first block of the units, and the number of their blocks.
  static size_t first_block(UnitRange units) { return static_cast<size_t>(std::max(units.first, 1) - 1); }
  size_t block_count(UnitRange units) const {
    return static_cast<size_t>(std::min(units.end, head_unit()) - 1) - first_block(units);
  }
  const Block& block(const Saved& saved, size_t i) const { return blocks_[first_block(saved.units) + i]; }
  const Block& last_block(const Saved& saved) const { return block(saved, saved.attention.size() - 1); }
  // The input of the block or norm after block i of saved.
  static const Tensor& block_output(const Saved& saved, size_t i) {
    return i + 1 < saved.attention.size() ? saved.attention[i + 1].x : saved.x;
  }

  // The rows of a (Vp, C) table that this rank holds.
  TableSlice table_slice(const Tensor& rows) const { return {rows, tp_.first(vocab_rows()), vocab_rows()}; }
  const Tensor& rope_table_on(const Stream& stream) const {
    return stream.device == Device::kCuda ? device_rope_table_ : rope_table_;
  }
  int64_t vocab_rows() const { return config_.vocab_padded(); }
  ParamSpec table_spec(const char* name, ParamRole role, int unit) const;

  // The rows of the tables of positions for the rows of a batch that a cache is filled from; empty where the model has
  // no such table.
  struct CachedPositions {
    Tensor rope;     // (N, D) f32
    Tensor learned;  // (N, C)
  };
  // x (n, C) = dropout(embedding of the tokens), the first block's input. cached: empty if row t has position t % T.
  void embed(LayerContext& ctx, const Tensor& tokens, const Tensor& x,
             const CachedPositions& cached = {}) const;
  // Recomputes saved's blocks [begin, end), as far as their memory has been overwritten.
  void recompute(LayerContext& ctx, const MicroBatch& batch, const Saved& saved, size_t begin,
                 size_t end) const;
  // Opens a unit's gradients for one section of a pass: the head's forward, or backward of the unit. What is old is
  // overwritten by the products of the section, if it has those of all the unit's overwritten parameters, and is zeroed
  // here otherwise.
  void open_gradients(LayerContext& ctx, int unit, bool has_products) const;
  // h (n, C) = output of the final norm; it is working memory if the units lack the head.
  void run_units(LayerContext& ctx, const MicroBatch& batch, Saved& saved, const Tensor& h) const;
  // The same for a batch of generation, with a cache per block.
  void run_units(LayerContext& ctx, const InferBatch& batch, const CachedPositions& positions, Saved& saved,
                 const Tensor& h, const std::vector<KvCache>& caches) const;
  // Runs the blocks and the final norm from stage_input on. cached: of a block, in order; null in training.
  void run_blocks(LayerContext& ctx, const DocumentMask& documents, const Tensor& rope, Saved& saved,
                  const Tensor& h, const std::vector<CachedTokens>& cached) const;

  // Scratch (layer.h). The rows of N tokens in the residual stream: this rank's (n, C), and all (N, C),
  // which are empty if n == N.
  Tensor own_rows(Arena& arena, int64_t N) const {
    return arena.alloc(compute_, {tp_.rows(N), config_.width});
  }
  Tensor all_rows(Arena& arena, int64_t N) const {
    return alloc_all_rows(arena, compute_, tp_.rows(N), N, config_.width);
  }
  struct HeadScratch {
    Tensor h, dh;  // (N, C) the final norm's output, and its gradient, for all ranks
  };
  struct EmbeddingScratch {
    Tensor d;      // (n, C) gradient before dropout
    Tensor d_all;  // (N, C) gradient of the embedding's output, of all ranks
  };
  struct InferScratch {
    Saved saved;
    Tensor h;  // (n, C)
    CachedPositions positions;
  };
  struct LogitScratch {
    Tensor all;      // (N, C) h of all ranks
    Tensor outputs;  // (N, C) the rows of it whose logits are wanted
  };
  HeadScratch head_scratch(Arena& arena, int64_t N, bool has_grads) const;
  EmbeddingScratch embedding_scratch(Arena& arena, int64_t N, bool has_dropout) const;
  InferScratch infer_scratch(Arena& arena, int64_t n, UnitRange units) const;
  LogitScratch logit_scratch(Arena& arena, int64_t N) const {
    return {.all = all_rows(arena, N), .outputs = arena.alloc(compute_, {N, config_.width})};
  }
  // Writes the logits of `batch` from h, this rank's rows of the final norm's output.
  void infer_logits(LayerContext& ctx, const InferBatch& batch, const Tensor& h, const Tensor& logits) const;
  // Measures the scratch of the embedding and the blocks. caches is as in AttentionLayer::plan_forward.
  void plan_units(Arena& arena, int64_t B, int64_t T, bool is_training, const CacheShape& caches = {}) const;

  ModelConfig config_;
  DType compute_;
  TensorParallel tp_;
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
