// Trainer makes the steps of a run: it submits the passes of a step, collects its result and makes the
// update.
//
// A step is synchronous or asynchronous. On the CPU the host sees the result before it makes the update. On
// GPUs, in every layout, the devices of all ranks check loss and gradient norm themselves and make the
// update, so the host can submit the next step before it collects this one (depth()).
#pragma once

#include <atomic>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ingot/config/config.h"
#include "ingot/core/arena.h"
#include "ingot/core/trace.h"
#include "ingot/data/loader.h"
#include "ingot/optim/loss_scaler.h"
#include "ingot/optim/optimizer.h"
#include "ingot/train/averaged_weights.h"
#include "ingot/train/evaluate.h"
#include "ingot/train/forward_check.h"
#include "ingot/train/layout.h"
#include "ingot/train/loss_watch.h"
#include "ingot/train/non_finite.h"
#include "ingot/train/step_results.h"

namespace ingot {

namespace cuda {
class Graph;
}  // namespace cuda

// Returns the trained parameters of a store as the optimizer sees them, in the order of the store's shards.
// seed: of stochastic rounding.
std::vector<OptimParam> optimizer_params(TrainingStore& store, uint64_t seed, const TensorParallel& tp);

// StepOrder is the caller's request for a step.
struct StepOrder {
  int64_t micros = 1;  // micro-batches of all ranks together
  StepInputs inputs = {};
  bool is_asynchronous = false;  // REQUIRES: depth(inputs) is not 0
  // If it is set on any rank between two micro-batches, the step is abandoned. It is ignored on a device and
  // in a pipeline. Null on all ranks or on none.
  const std::atomic<bool>* is_stop_requested = nullptr;
  // Replaces the cross-entropy of a synchronous step; it must live until the step is collected. All
  // micro-batches count by their numbers of targets.
  CustomLoss* loss = nullptr;
};

// SubmittedStep is what the host keeps of a submitted step until it is collected; going back to the start of
// a step needs no more. Everything else that belongs to a step in flight lies in its slot
// (ExecutorStep::slot).
struct SubmittedStep {
  StepOrder order = {};
  int64_t first_sample = 0;
  LossScaler::State scaler = {};  // state before the step
  size_t slot = 0;
  double wait_s = 0;          // seconds spent waiting for the loader
  bool is_abandoned = false;  // stopped between two micro-batches
};

struct StepResult {
  SubmittedStep step;    // if it was abandoned, the other fields have no meaning
  double loss = 0;       // mean over the counted tokens of the global batch, nats
  double top1 = 0;       // fraction of the counted tokens whose target has the largest logit
  double grad_norm = 0;  // before clipping
  // With train.noise_scale: |g|^2 of the mean gradient of one micro-batch of a rank, as the mean over ranks;
  // 0 for a step with one micro-batch per rank.
  double micro_squares = 0;
  double clip = 1;                      // factor applied to the gradient by global-norm clipping
  int64_t tokens = 0;                   // predicted tokens
  double grad_correction = 1;           // turns the gradient into the mean over counted tokens, unscaled
  std::optional<double> lowered_scale;  // the next loss scale, if these gradients overflowed; no update
  std::optional<NonFinite> non_finite;
  bool is_updated = false;          // the device has made the update
  bool is_repeated = false;         // made again, synchronously, because the asynchronous step was not finite
  RawLoss raw;                      // loss of the tokens checked in this step
  Fp8Stats fp8;                     // counts of all casts to FP8
  double head_filtered = 0;         // fraction of the head's tiles that were skipped
  std::array<double, 2> rewards{};  // of pairs: means of the chosen and of the rejected answers
};

// TrainingState is what a step changes in addition to the weights. Checkpoints hold it.
struct TrainingState {
  Fp8State fp8;
  Optimizer optimizer;
  LossScaler loss_scaler;
  int64_t steps_done = 0;  // includes the asynchronous steps in flight
};

class Trainer {
 public:
  // Allocates all memory of a step. config must be valid and its model's vocab set, and the layout made for
  // it. With several ranks, all of them call every function except the accessors, in the same order. If the
  // layout is for a memory plan, only arenas() and the accessors may be called.
  Trainer(const RunConfig& config, Layout layout);

  // Sets the initial weights, which depend on the seed only.
  void initialise();

  // Returns how many steps may be in flight when a step with these inputs is submitted: 0 if it must be
  // synchronous. Asynchronous steps are not available on the CPU, with FP8 and f16 together, with
  // head.filter, with delayed FP8 scales while a tensor has no history, or for a step that records statistics
  // or checks losses. All ranks return the same.
  size_t depth(const StepInputs& inputs) const;

  // Submits the next step; the loader yields this rank's shard of its micro-batches. A synchronous step must
  // be collected before anything else; an asynchronous one counts as done at once.
  void submit(BatchSource& loader, const StepOrder& order);
  // Blocks until the oldest submitted step has finished and returns its result.
  // If a value is not finite, result.non_finite names its origin, which is found by computing the
  // micro-batches again one by one. In f16, gradients that are not finite lower the loss scale instead,
  // while it can be lowered. An abandoned step leaves the loader at its start.
  // If an asynchronous step was not finite, it and all steps after it changed nothing: trainer and loader go
  // back to its start, and it is made again as a synchronous one, whose result is returned.
  StepResult collect(BatchSource& loader);
  // Makes the optimizer's update of the step collected last, with its gradients clipped by result.clip,
  // unless the device has made it. REQUIRES: they are finite and have not overflowed.
  void update(const StepResult& result);
  // Zeroes the gradients instead; weights, optimizer and step count are unchanged.
  void discard();

  // Submits and collects a synchronous step of grad_accum micro-batches and makes its update. Throws a
  // kNumerics error, and changes no weights, if the loss or a gradient is not finite. Makes no update if the
  // loss scale was lowered.
  StepResult step(BatchSource& loader, const StepInputs& inputs);

  // Walks the text in consecutive windows of the context and predicts every token except the first once.
  // Stops after about max_tokens if that is > 0, and when should_continue (if given) returns false. Runs
  // without dropout and leaves the weights unchanged; with optimizer.ema it evaluates the moving averages.
  EvalResult evaluate(const TokenSource& text, int64_t max_tokens, const EvalProgress& should_continue = {});
  // Returns the losses of a batch of the layout's shape, with the weights as trained and without dropout.
  LossSums forward(const Batch& batch, CustomLoss* loss = nullptr);
  // Returns the log-probability of each document of a source of pairs under the current weights. Runs without
  // dropout, on the CPU.
  std::vector<double> score_documents(const TokenSource& pairs, const EvalProgress& should_continue = {});
  // The weights that are evaluated: with optimizer.ema they are the moving averages for as long as the
  // returned object lives, and otherwise there is no object.
  std::unique_ptr<AveragedWeights> average_weights();

  // Returns the norms of every parameter in the last update with inputs.wants_stats; grad_norm is before
  // clipping.
  std::vector<ParamStats> stats();

  struct ArenaUse {
    std::string name;
    size_t bytes;
    Memory memory;
  };
  std::vector<ArenaUse> arenas() const;

  const RunConfig& config() const { return config_; }
  Layout& layout() { return layout_; }
  const Layout& layout() const { return layout_; }
  TrainingStore& params() { return *layout_.params; }
  TrainingState& state() { return state_; }
  const TrainingState& state() const { return state_; }
  Trace& trace() { return trace_; }

 private:
  EvalWalk walk(int64_t max_tokens, const EvalProgress& should_continue) const;
  LayerContext context(float dropout_p, int64_t first_row);
  ExecutorStep executor_step(BatchSource& loader, const StepOrder& order);
  double expected_tokens(int64_t micros) const;
  int64_t checked_tokens() const;
  bool can_check_on_device() const;
  bool is_any_rank_stopping(const std::atomic<bool>& is_stop_requested);
  void submit_update(const SubmittedStep& step);
  StepResult collect_synchronous(BatchSource& loader, const SubmittedStep& step);
  void rewind(BatchSource& loader);
  StepResult totals(const LossSums& sums, const SubmittedStep& step);
  StepResult result_of(const LossTotals& sums, const SubmittedStep& step) const;
  double grad_norm();
  void reduce_amaxes();
  bool has_overflowed(const StepResult& result);
  // trainer_non_finite.cpp:
  LossSums run_alone(BatchSource& loader, int64_t micro, const StepOrder& order,
                     const std::function<void(const Transformer::Saved&)>& after_forward = {});
  NonFinite find_bad_loss(BatchSource& loader, const SubmittedStep& step);
  NonFinite find_bad_gradient(BatchSource& loader, const SubmittedStep& step);

  RunConfig config_;
  Trace trace_;
  std::unique_ptr<SpanListener> nvtx_;  // null on the CPU
  Layout layout_;
  TrainingState state_;
  std::unique_ptr<ForwardCheck> forward_check_;  // null if the check does not apply
  Arena scratch_;
  LossWatch loss_watch_;
  std::optional<StepResults> results_;  // nullopt if no step can be asynchronous
  // The captured update of asynchronous steps, whose arguments are replaced every step. shared_ptr, because
  // builds without CUDA cannot destroy a Graph.
  std::shared_ptr<cuda::Graph> update_graph_;
  bool has_updated_ = false;             // true once an update has run
  std::deque<SubmittedStep> submitted_;  // steps in flight, oldest first; at most kStepSlots
  double first_squares_ = 0;             // |g|^2 of the first micro-batch's gradient; 0: unknown
  int64_t window_ = 0;                   // the StepInputs::window of passes that are made now
  double clip_ = 1;                      // factor applied by clipping in the last update
  std::vector<double> amaxes_ = {};      // amaxes of FP8 tensors, while ranks reduce them
};

}  // namespace ingot
