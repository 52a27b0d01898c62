// Trainer: a model, its optimizer and its memory; one step at a time.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "ingot/config/config.h"
#include "ingot/core/arena.h"
#include "ingot/core/trace.h"
#include "ingot/data/loader.h"
#include "ingot/nn/recompute.h"
#include "ingot/nn/transformer.h"
#include "ingot/optim/loss_scaler.h"
#include "ingot/optim/optimizer.h"
#include "ingot/train/device_feed.h"
#include "ingot/train/evaluate.h"
#include "ingot/train/forward_check.h"
#include "ingot/train/late_steps.h"
#include "ingot/train/loss_watch.h"
#include "ingot/train/non_finite.h"
#include "ingot/train/schedule.h"
#include "ingot/train/trainer_parts.h"

namespace ingot {

namespace cuda {
class Graph;
}  // namespace cuda

struct StepResult {
  double loss = 0;       // mean over the counted tokens of the global batch, nats
  double top1 = 0;       // fraction of them whose target has the largest logit
  double grad_norm = 0;  // before clipping
  double clip = 1;       // what clipping multiplied the gradient by
  int64_t tokens = 0;    // that were predicted
  double wait_s = 0;     // for the loader
  double grad_correction =
      1;                  // of the gradients: a mean over the tokens that were counted, without the scale
  double loss_scale = 1;  // that they were computed with
  std::optional<double> lowered_scale;  // of the next step: these overflowed, and make no update
  std::optional<NonFinite> non_finite;
  bool is_abandoned = false;  // told to end between two micro-batches; nothing else here is meaningful then
  RawLoss raw;                // of the tokens whose loss was checked in this step
  Fp8Stats fp8;               // of all casts to FP8
  double head_filtered = 0;   // fraction of the head's tiles that were left out
};

class Trainer {
 public:
  // config is valid and its model's vocab set. All memory of a step is taken here. Where parts are shared by
  // ranks, all of them call everything but the accessors in the same order.
  // backing: kAddresses for a trainer that only arenas() may be called of; no device is needed, and nothing
  // is computed.
  explicit Trainer(const RunConfig& config,
                   std::unique_ptr<TrainerParts> parts = std::make_unique<TrainerParts>(),
                   Backing backing = Backing::kMemory);

  // Initial weights: a function of the seed alone.
  void initialise();

  // Loss and gradients of the next step of `micros` micro-batches, of which the loader gives this rank its
  // share. If one of them is not finite, result.non_finite says where, found by computing the micro-batches
  // again one by one; the loader has then gone on as ever. In f16, gradients that are not finite lower the
  // loss scale instead, while that is possible.
  // is_told_to_end: if set on any rank between two micro-batches, the step is abandoned: the gradients are
  // zero again, trainer and loader stand where it began, and result.is_abandoned is true. Not looked at on a
  // device and in a pipeline; null on all ranks or on none.
  StepResult gradients(Loader& loader, int64_t micros, const std::atomic<bool>* is_told_to_end = nullptr);
  // The optimizer's update with those gradients, clipped by result.clip. REQUIRES: they are finite and have
  // not overflowed.
  void update(const StepResult& result, const StepInputs& inputs);
  // Forgets them: weights, optimizer and step count stay.
  void discard();

  // Gradients and update in one that nobody waits for (trainer_late.cpp), where a device judges by itself
  // whether they are finite and an update is made. Not on the CPU, with several ranks, FP8 with delayed
  // scales or beside f16, or head.filter, and not for a step with stats or checked losses.
  bool can_give(const StepInputs& inputs) const;
  // Gives the next step to the device; it counts as done. REQUIRES: can_give; fewer than LateSteps::kUnderWay
  // are.
  void give(Loader& loader, int64_t micros, const StepInputs& inputs);
  size_t steps_given() const { return given_.size(); }
  // What came of the oldest, waiting for it. Nothing: it was not finite (in f16: has overflowed), and neither
  // it nor those given after it changed anything; trainer and loader stand where it began, and gradients()
  // says what was not finite.
  std::optional<StepResult> read_given(Loader& loader);

  // The norms of every parameter in the last update with inputs.wants_stats; grad_norm is before clipping.
  std::vector<ParamStats> stats();

  // Gradients and update in one, on grad_accum batches. kNumerics error, and nothing changed, if the loss or
  // a gradient is not finite. inputs.lr: the learning rate now. No update where the loss scale was lowered.
  StepResult step(Loader& loader, const StepInputs& inputs);

  // Walks the text in consecutive windows of the context; every token but the first is predicted once.
  // max_tokens > 0 stops after about so many, goes_on (if given) whenever it returns false. Without dropout,
  // weights untouched; with optimizer.ema the moving averages stand in for them.
  EvalResult evaluate(const TokenSource& text, int64_t max_tokens, const EvalProgress& goes_on = {});

  // What forward keeps for backward from now on. REQUIRES: it fits the arena that the config's policy filled.
  void set_recompute(const RecomputePlan& plan);
  const RecomputePlan& recompute() const { return saved_.plan; }

  const Transformer& model() const { return model_; }
  TrainingStore& params() { return params_; }
  Optimizer& optimizer() { return optimizer_; }
  const Optimizer& optimizer() const { return optimizer_; }
  Fp8State& fp8() { return fp8_; }
  LossScaler& loss_scaler() { return loss_scaler_; }
  Reducers reducers() { return parts_->reducers(); }
  Region& region() { return parts_->region(); }
  const DataShare& share() const { return share_; }
  Stages* stages() { return stages_; }  // null: the whole model is here
  Stream& stream() { return stream_; }
  Trace& trace() { return trace_; }
  int64_t steps_done() const { return steps_done_; }
  void set_steps_done(int64_t steps) { steps_done_ = steps; }

  BatchShape batch_shape() const;  // of this rank's micro-batches
  struct ArenaUse {
    std::string name;
    size_t bytes;
    Memory memory;
  };
  std::vector<ArenaUse> arenas() const;

 private:
  LayerContext context(float dropout_p, int64_t first_row);
  LossSums run_micro_batches(Loader& loader, int64_t micros, const std::atomic<bool>* is_told_to_end,
                             StepResult& result);
  bool is_any_rank_told(const std::atomic<bool>* is_told_to_end);
  LossSums run_micro(const MicroOp& op, const MicroBatch& batch, int64_t micros);
  NonFinitePlace bad_loss_place();
  void receive_losses(Loader& loader, int64_t first_sample, int64_t micros, LossSums& total,
                      StepResult& result);
  void run_lone_micro(Loader& loader, int64_t micro, int64_t micros);
  void add_up(LossSums& sums, StepResult& result);
  double grad_norm();
  void share_amaxes();
  double expected_tokens(int64_t micros) const;
  int64_t checked_tokens() const;
  bool has_overflowed(const StepResult& result);
  NonFinite find_bad_gradient(Loader& loader, int64_t first_sample, int64_t micros);
  bool is_judged_on_device() const;
  void give_update(const StepInputs& inputs, const Tensor& factor);
  void give_micro(int64_t micro, const MicroBatch& batch, int64_t micros);
  // Where the model lies in stages on several ranks (trainer_stages.cpp):
  StagedStep staged_step(Loader& loader, int64_t micros);
  LossSums run_stages(Loader& loader, int64_t micros, StepResult& result);
  NonFinite find_bad_loss(Loader& loader, int64_t first_sample, int64_t micros);

  RunConfig config_;
  Trace trace_;
  std::unique_ptr<SpanListener> nvtx_;  // on a device
  Stream stream_;
  std::unique_ptr<TrainerParts> parts_;
  DataShare share_;
  Transformer model_;
  Fp8State fp8_;
  TrainingStore& params_;
  Stages* stages_;
  Optimizer optimizer_;
  LossScaler loss_scaler_;
  RecomputePlan planned_;  // by the config's policy
  Arena activations_;
  std::unique_ptr<ForwardCheck> forward_check_;  // null where it does not apply
  Arena scratch_;
  Transformer::Saved saved_;
  DeviceFeed feed_;
  LossWatch loss_watch_;
  double clip_ = 1;                // the factor that clipping applied in the last update
  std::vector<MicroOp> schedule_;  // of this rank
  std::vector<double> amaxes_;     // of FP8 tensors, while ranks compare them
  struct Given {
    int64_t first_sample = 0, micros = 0;
    LossScaler::State scaler = {};  // before it
    size_t batches_sent = 0;        // with its own
    double wait_s = 0;
  };
  // Forward and backward of a micro-batch, and the update, whose arguments every step replaces; shared:
  // builds without CUDA cannot destroy one.
  std::shared_ptr<cuda::Graph> graph_, update_graph_;
  std::pair<int64_t, double> graph_is_of_;  // micro-batches of a step (0: none yet), loss scale
  std::vector<int64_t> graph_elements_;     // that it casts to FP8, by tensor
  bool is_warm_ = false;                    // backward has run once by the plan that is saved_'s
  bool has_updated_ = false;
  std::optional<LateSteps> late_;
  std::vector<Given> given_;
  int64_t steps_done_ = 0;
};

}  // namespace ingot
