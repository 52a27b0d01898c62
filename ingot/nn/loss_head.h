// The head of the model: which kind and precision of ops/linear_cross_entropy.h, from the final norm's result
// to the losses and their gradients; and the watch over the precision of the loss that is trained on.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ingot/nn/config.h"
#include "ingot/nn/layer.h"
#include "ingot/nn/tensor_share.h"
#include "ingot/ops/linear_cross_entropy.h"
#include "ingot/ops/loss_sums.h"

namespace ingot {

// kCompute: the model's compute dtype. kFp8 holds while training; evaluation is bf16 then.
enum class HeadDtype { kCompute, kF32, kBf16, kFp8 };

struct HeadConfig {
  HeadKind kind = HeadKind::kChunked;
  HeadDtype precision = HeadDtype::kCompute;
  HeadAccumulation accumulation = HeadAccumulation::kF32;
  LossDtype loss_dtype = LossDtype::kF32;  // of training; the others are there to show what goes wrong
  double z_loss = 0;                       // weight of lse^2
  double label_smoothing = 0;              // in [0, 1)
  double filter = 0;  // kRecompute: largest gradient of a logit that is left out; 0: exact
  Fp8HeadScaling fp8_scaling = Fp8HeadScaling::kStatic;
  double fp8_x_scale = 2, fp8_w_scale = 32;  // kStatic
  int64_t raw_ce_every = 10;                 // steps between checks of the loss; 0: never
  int64_t raw_ce_tokens = 64;                // of the step's first micro-batch
  double raw_ce_limit = 0.1;                 // allowed difference, relative to the loss or, below 1, absolute
  double raw_ce_bias_limit = 0;              // the same of several checks in a row; 0: what rounding explains

  // Throws a kUsage error that names the key, the rule and the value.
  void validate() const;
};

// The loss of a few tokens computed once more in f32, from the f32 master weights; means in nats.
struct RawLoss {
  double ce = 0;         // plain cross-entropy
  double objective = 0;  // with z-loss and label smoothing, as trained
  double trained = 0;    // what the training path gave for the same tokens
  int64_t tokens = 0;    // counted; 0: nothing was computed
  // For other tokens: the objective by a forward pass in f32 throughout, and what the training path gave for
  // them.
  double forward_objective = 0, forward_trained = 0;
  int64_t forward_tokens = 0;  // counted; 0: nothing was computed
};

// Row i of sums (n, kLossTotalsBytes), as loss_sums takes it.
inline Tensor sums_row(const Tensor& sums, int64_t i) {
  return sums.rows(i, i + 1).reshape({kLossTotalsBytes});
}

inline constexpr int64_t kCheckSums = 3;  // of the objective, of the plain loss, of what was trained on
// Of a tensor that the host can read.
RawLoss read_raw_loss(const Tensor& sums);

class LossHead {
 public:
  LossHead() = default;
  // weight: id of the (Vp, C) table. Tensor-parallel ranks share its rows; below, Vp counts those of this
  // one.
  LossHead(const ModelConfig& model, const HeadConfig& config, DType compute, int weight,
           const TensorShare& share = {});

  // Tokens of one chunk, of a micro-batch of N.
  int64_t chunk(int64_t N, Device device = Device::kCpu) const;
  // The scratch that forward and check take, on a measuring arena.
  void plan(Arena& arena, int64_t N, bool is_training) const;

  struct Out {
    Tensor losses;      // (N) f32
    Tensor is_correct;  // (N) u8
    Tensor dx;  // (N, C) compute dtype, overwritten: of shared rows a part; the weight's gradient is +=
  };
  // With grad_scale != 0 the gradients of grad_scale * (sum of losses), else the plain cross-entropy of
  // evaluation alone. x (N, C) compute dtype; targets (N) i32.
  LinearCrossEntropyReport forward(LayerContext& ctx, const Out& out, const Tensor& x, const Tensor& targets,
                                   float grad_scale) const;
  // About `tokens` rows of x, evenly spaced, beside the losses that forward gave: sums (kCheckSums,
  // kLossTotalsBytes) for read_raw_loss.
  void check(LayerContext& ctx, const Tensor& sums, const Tensor& losses, const Tensor& x,
             const Tensor& targets, int64_t tokens) const;

  // The tensors that are cast to FP8, in the order in which forward counts them; none in other precisions.
  std::vector<std::string> fp8_tensors() const;
  // ctx.fp8's index of the first of them.
  void set_first_counter(int index) { first_counter_ = index; }

 private:
  // What forward allocates.
  struct Layout {
    Tensor x, w, dx;  // in the dtype of the products; absent where the model's own serve
    LinearCrossEntropyScratch scratch;
  };
  LinearCrossEntropyConfig op_config(int64_t N, float grad_scale, Device device) const;
  ColumnShare columns(LayerContext& ctx) const;
  Layout layout(Arena& arena, int64_t N, const LinearCrossEntropyConfig& op, bool has_grads) const;
  struct CheckLayout {
    Tensor x, logits;                 // (k, C), (k, Vp)
    Tensor targets, losses, trained;  // (k)
    Tensor w_part;                    // (rows, C) f32, for weights without an f32 master
    ColumnShareScratch share;
  };
  CheckLayout check_layout(Arena& arena, int64_t tokens) const;

  HeadConfig config_;
  CrossEntropyConfig loss_;  // of training, grad_scale to be filled in
  DType compute_ = DType::f32;
  TensorShare share_;
  int64_t C_ = 0, Vp_ = 0;
  int weight_ = -1;
  int first_counter_ = 0;
};

}  // namespace ingot
