// Trainer holds a model, its optimizer and its memory, and runs one step at a time.
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
#include "ingot/train/loss_watch.h"
#include "ingot/train/non_finite.h"
#include "ingot/train/schedule.h"
#include "ingot/train/step_result_ring.h"
#include "ingot/train/trainer_parts.h"

namespace ingot {

namespace cuda {
class Graph;
}  // namespace cuda

struct StepResult {
  double loss = 0;                      // mean over the counted tokens of the global batch, nats
  double top1 = 0;                      // fraction of the counted tokens whose target has the largest logit
  double grad_norm = 0;                 // before clipping
  double clip = 1;                      // factor applied to the gradient by global-norm clipping
  int64_t tokens = 0;                   // predicted tokens
  double wait_s = 0;                    // seconds spent waiting for the loader
  double grad_correction = 1;           // turns the gradient into the mean over counted tokens, unscaled
  double loss_scale = 1;                // loss scale of these gradients
  std::optional<double> lowered_scale;  // the next loss scale, if these gradients overflowed; no update
  std::optional<NonFinite> non_finite;
  bool is_abandoned = false;  // stopped between two micro-batches; the other fields have no meaning then
  RawLoss raw;                // loss of the tokens checked in this step
  Fp8Stats fp8;               // counts of all casts to FP8
  double head_filtered = 0;   // fraction of the head's tiles that were skipped
};

class Trainer {
 public:
  // Allocates all memory of a step. config must be valid and its model's vocab set. With several ranks, all
  // of them call every function except the accessors, in the same order.
  // backing: kAddresses makes a trainer without memory, of which only arenas() may be called; it needs no
  // device and computes nothing.
  explicit Trainer(const RunConfig& config,
                   std::unique_ptr<TrainerParts> parts = std::make_unique<TrainerParts>(),
                   Backing backing = Backing::kMemory);

  // Sets the initial weights, which depend on the seed only.
  void initialise();

  // Computes loss and gradients of the next step of `micros` micro-batches; the loader yields this rank's
  // shard of them. If a value is not finite, result.non_finite names its origin, which is found by
  // computing the micro-batches again one by one; the loader still advances by one step. In f16, gradients
  // that are not finite lower the loss scale instead, while it can be lowered.
  // is_told_to_end: if it is set on any rank between two micro-batches, the step is abandoned: the
  // gradients are zero, trainer and loader are back at the start of the step, and result.is_abandoned is
  // true. It is ignored on a device and in a pipeline. It must be null on all ranks or on none.
  StepResult gradients(Loader& loader, int64_t micros, const std::atomic<bool>* is_told_to_end = nullptr);
  // Runs the optimizer's update with these gradients, clipped by result.clip. REQUIRES: they are finite
  // and have not overflowed.
  void update(const StepResult& result, const StepInputs& inputs);
  // Zeroes the gradients; weights, optimizer and step count are unchanged.
  void discard();

  // Returns true if the step can run asynchronously (trainer_async.cpp): the device checks the loss and
  // the gradient norm itself and skips the update if either is not finite. Not available on the CPU, with
  // several ranks, with delayed FP8 scales, with FP8 and f16 together, with head.filter, or for a step
  // that records statistics or checks losses.
  bool can_submit(const StepInputs& inputs) const;
  // Submits the next step to the device and counts it as done. REQUIRES: can_submit(inputs), and fewer
  // than StepResultRing::kDepth steps are in flight.
  void submit(Loader& loader, int64_t micros, const StepInputs& inputs);
  size_t steps_in_flight() const { return submitted_.size(); }
  // Blocks until the oldest submitted step has finished and returns its result. Returns nullopt if its
  // loss or gradient norm was not finite (in f16: if the gradients overflowed). In that case this step
  // and every step submitted after it left the weights unchanged, and the trainer and the loader are
  // rewound to its start, so the caller can repeat it with gradients() to find the cause.
  std::optional<StepResult> collect(Loader& loader);

  // Returns the norms of every parameter in the last update with inputs.wants_stats; grad_norm is before
  // clipping.
  std::vector<ParamStats> stats();

  // Runs gradients() and update() on grad_accum micro-batches at learning rate inputs.lr. Throws a
  // kNumerics error, and changes no weights, if the loss or a gradient is not finite. Makes no update if
  // the loss scale was lowered.
  StepResult step(Loader& loader, const StepInputs& inputs);

  // Walks the text in consecutive windows of the context and predicts every token except the first once.
  // Stops after about max_tokens if that is > 0, and when goes_on (if given) returns false. Runs without
  // dropout and leaves the weights unchanged; with optimizer.ema it evaluates the moving averages.
  EvalResult evaluate(const TokenSource& text, int64_t max_tokens, const EvalProgress& goes_on = {});

  // Sets what forward keeps for backward from now on. REQUIRES: it fits the arena, whose size follows
  // from the config's policy.
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
  const DataShard& data_shard() const { return data_shard_; }
  Stages* stages() { return stages_; }  // null if this rank holds the whole model
  Stream& stream() { return stream_; }
  Trace& trace() { return trace_; }
  int64_t steps_done() const { return steps_done_; }
  void set_steps_done(int64_t steps) { steps_done_ = steps; }

  BatchShape batch_shape() const;  // this rank's micro-batches
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
  void submit_update(const StepInputs& inputs, const Tensor& factor);
  void submit_micro(int64_t micro, const MicroBatch& batch, int64_t micros);
  // Used if the model is split into pipeline stages (trainer_stages.cpp):
  StagedStep staged_step(Loader& loader, int64_t micros);
  LossSums run_stages(Loader& loader, int64_t micros, StepResult& result);
  NonFinite find_bad_loss(Loader& loader, int64_t first_sample, int64_t micros);

  RunConfig config_;
  Trace trace_;
  std::unique_ptr<SpanListener> nvtx_;  // null on the CPU
  Stream stream_;
  std::unique_ptr<TrainerParts> parts_;
  DataShard data_shard_;
  Transformer model_;
  Fp8State fp8_;
  TrainingStore& params_;
  Stages* stages_;
  Optimizer optimizer_;
  LossScaler loss_scaler_;
  RecomputePlan planned_;  // chosen by the config's policy
  Arena activations_;
  std::unique_ptr<ForwardCheck> forward_check_;  // null if the check does not apply
  Arena scratch_;
  Transformer::Saved saved_;
  DeviceFeed feed_;
  LossWatch loss_watch_;
  double clip_ = 1;                // factor applied by clipping in the last update
  std::vector<MicroOp> schedule_;  // this rank's operations
  std::vector<double> amaxes_;     // amaxes of FP8 tensors, while ranks reduce them
  struct Submitted {
    int64_t first_sample = 0, micros = 0;
    LossScaler::State scaler = {};  // state before the step
    size_t batches_sent = 0;        // including this step's
    double wait_s = 0;
  };
  // The captured forward and backward of a micro-batch, and the update, whose arguments are replaced
  // every step. shared_ptr, because builds without CUDA cannot destroy a Graph.
  std::shared_ptr<cuda::Graph> graph_, update_graph_;
  std::pair<int64_t, double> graph_is_of_;  // micro-batches per step (0: not captured), loss scale
  std::vector<int64_t> graph_elements_;     // elements that graph_ casts to FP8, per tensor
  bool is_warm_ = false;                    // true once backward has run with the current recompute plan
  bool has_updated_ = false;                // true once an update has run
  std::optional<StepResultRing> results_ring_;
  std::vector<Submitted> submitted_;
  int64_t steps_done_ = 0;
};

}  // namespace ingot
