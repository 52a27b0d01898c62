// The loss head of the model: configures ops/linear_cross_entropy.h, which goes from the final norm's
// output to the losses and their gradients; and checks the precision of the training loss.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ingot/nn/config.h"
#include "ingot/nn/layer.h"
#include "ingot/nn/micro_batch.h"
#include "ingot/nn/tensor_parallel.h"
#include "ingot/ops/linear_cross_entropy.h"
#include "ingot/ops/loss_sums.h"

namespace ingot {

struct HeadConfig {
  HeadKind kind = HeadKind::kChunked;
  HeadPrecision precision = HeadPrecision::kCompute;  // with kFp8 evaluation uses bf16
  HeadAccumulation accumulation = HeadAccumulation::kF32;
  LossDtype loss_dtype = LossDtype::kF32;  // for training; the others exist to show what goes wrong
  double z_loss = 0;                       // weight of lse^2
  double label_smoothing = 0;              // in [0, 1)
  double dpo_beta = 0;  // above 0: micro-batches with a reference have DPO's loss (ops/preference_loss.h)
  double filter = 0;    // kRecompute: largest logit gradient that may be skipped; 0: exact
  Fp8HeadScaling fp8_scaling = Fp8HeadScaling::kStatic;
  double fp8_x_scale = 2, fp8_w_scale = 32;  // kStatic
  int64_t raw_ce_every = 10;                 // steps between checks of the loss; 0: never
  int64_t raw_ce_tokens = 64;                // tokens to check, from the step's first micro-batch
  double raw_ce_limit = 0.1;                 // allowed difference: relative to the loss, absolute below 1
  double raw_ce_bias_limit = 0;  // the same for several checks in a row; 0: derived from the formats

  // Throws a kUsage error that names the key, the rule and the value.
  void validate() const;
};

// The loss of a few tokens computed a second time in f32, from the f32 master weights; means in nats.
struct RawLoss {
  double ce = 0;         // plain cross-entropy
  double objective = 0;  // with z-loss and label smoothing, as trained
  double trained = 0;    // as the training path computed it for the same tokens
  int64_t tokens = 0;    // counted tokens; 0: nothing was computed
  // The same for other tokens: the objective by a forward pass entirely in f32, and by the training path.
  double forward_objective = 0, forward_trained = 0;
  int64_t forward_tokens = 0;  // counted tokens; 0: nothing was computed
};

// Row i of sums (n, kLossTotalsBytes) in the form that loss_sums takes.
inline Tensor sums_row(const Tensor& sums, int64_t i) {
  return sums.rows(i, i + 1).reshape({kLossTotalsBytes});
}

inline constexpr int64_t kCheckSums = 3;  // the objective, the plain loss, the training path's loss
// Reads the sums from a tensor that the host can read.
RawLoss read_raw_loss(const Tensor& sums);

class LossHead {
 public:
  LossHead() = default;
  // weight: id of the (Vp, C) table. Its rows are sharded over the tensor-parallel ranks; below, Vp counts
  // this rank's rows.
  LossHead(const ModelConfig& model, const HeadConfig& config, DType compute, int weight,
           const TensorParallel& tp = {});

  // Tokens per chunk for a micro-batch of N tokens.
  int64_t chunk(int64_t N, Device device = Device::kCpu, bool is_training = true) const;
  // The parameter that the head multiplies by.
  int weight() const { return weight_; }
  // Measure the scratch of forward, and of check for as many tokens as the config has checked.
  void plan(Arena& arena, int64_t N, bool has_grads) const;
  void plan_check(Arena& arena, int64_t N) const;

  struct Out {
    Tensor losses;      // (N) f32
    Tensor is_correct;  // (N) u8
    Tensor dx;          // (N, C) compute dtype, =; with a sharded table this rank's term of a sum
    // For has_pairs(): (N) i32, the rows that the losses count, and (2, N) f32, PreferenceOut::rewards.
    Tensor counted = {}, rewards = {};
  };
  // With grad_scale != 0 it computes the gradients of grad_scale * (sum of losses), and adds (+=) the
  // weight's to the store; otherwise only the plain cross-entropy for evaluation. x (N, C) compute dtype. If
  // has_pairs() and the batch has a reference, the losses are those of its pairs. The logits are then
  // computed twice, because the weight of an answer's gradient follows from all its losses. With ctx.loss the
  // losses are its own; throws a kUsage error then if training has pairs or an FP8 head, or if the table is
  // sharded.
  LinearCrossEntropyReport forward(LayerContext& ctx, const Out& out, const Tensor& x,
                                   const MicroBatch& batch, float grad_scale) const;
  bool has_pairs() const { return config_.dpo_beta > 0; }
  // Computes the loss of about `tokens` evenly spaced rows of x again, in f32. Writes sums (kCheckSums,
  // kLossTotalsBytes) of it and of the losses that forward gave, for read_raw_loss.
  void check(LayerContext& ctx, const Tensor& sums, const Tensor& losses, const Tensor& x,
             const Tensor& targets, int64_t tokens) const;

  // Names of the tensors that are cast to FP8, in the order in which forward counts them; empty in
  // other precisions.
  std::vector<std::string> fp8_tensors() const;
  // Sets the index of the first of them in ctx.fp8.
  void set_first_counter(int index) { first_counter_ = index; }

 private:
  // Memory that forward allocates.
  struct Layout {
    Tensor x, w, dx;                   // in the dtype of the products; empty where the model's own are used
    Tensor token_losses, row_weights;  // (N) f32, for pairs
    LinearCrossEntropyScratch scratch;
  };
  LinearCrossEntropyConfig op_config(int64_t N, float grad_scale, Device device) const;
  void run_custom(LayerContext& ctx, const LinearCrossEntropyOut& out, const LinearCrossEntropyIn& in,
                  const LinearCrossEntropyConfig& op) const;
  ColumnShard columns(LayerContext& ctx) const;
  Layout layout(Arena& arena, int64_t N, const LinearCrossEntropyConfig& op, bool has_grads) const;
  struct CheckLayout {
    Tensor x, logits;                 // (k, C), (k, Vp)
    Tensor targets, losses, trained;  // (k)
    Tensor w_part;                    // (rows, C) f32, for weights without an f32 master
    ColumnShardScratch tp;
  };
  CheckLayout check_layout(Arena& arena, int64_t tokens) const;

  HeadConfig config_;
  CrossEntropyConfig loss_;  // for training; grad_scale is filled in per call
  DType compute_ = DType::f32;
  TensorParallel tp_;
  int64_t C_ = 0, Vp_ = 0;
  int weight_ = -1;
  int first_counter_ = 0;
};

}  // namespace ingot
