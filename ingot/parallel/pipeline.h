// Pipeline parallelism: executes the lists of pipeline_schedule.h; each rank holds the units of its
// stages (stage_plan.h).
//
// The model's own forward and backward compute a stage; this file adds the messages and the memory, which
// holds as many micro-batches' activations per chunk of the model as the list has in flight. Messages
// from other stages are received while the rank computes, one message of each kind ahead, into separate
// memory.
//
// On a CUDA device the host submits all of a step without waiting; the stream and NCCL's links between
// neighbours (comm/device_group.h) keep the messages in order. Messages go through the host, which then waits
// for each of them, in two cases:
//   - ranks share a device, or NCCL is missing;
//   - the host may wait for the whole device in this step: in the first step, which allocates memory for
//     products and kernels; if attention must choose kernels for a new number of documents; and if the step
//     checks or reads activations. With NCCL this wait would deadlock, if a pending receive depends on work
//     that this rank has not submitted yet.
//
// With has_graphs each pass of a step is a CUDA graph, which holds the collectives of its layers and
// gradients, but no message between stages. They are captured in a step whose messages go through the host,
// because that allocates memory.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "ingot/comm/communicator.h"
#include "ingot/parallel/pipeline_schedule.h"
#include "ingot/parallel/stage_clock.h"
#include "ingot/parallel/stage_plan.h"
#include "ingot/train/device_feed.h"
#include "ingot/train/executor.h"
#include "ingot/train/pass_runner.h"

namespace ingot {

struct PipelineConfig {
  PipelineShape shape;  // micros: the most micro-batches of a step
  StagePlan plan;
  RecomputeConfig recompute = {};  // the budget is for all activations of this rank
  BlockTimes block_times = {};     // for a policy that chooses by them; the same on all ranks
  BatchShape batch = {.batch = 1, .context = 1};
  bool has_graphs = false;  // replays the passes of asynchronous steps as CUDA graphs (train.graph)
};

class Pipeline final : public Executor {
 public:
  // All ranks of `group` call this; it has shape.ranks ranks. Borrows model, group and stream, on which all
  // passes run. Throws a kUsage error if the shape does not fit, or if the activations fit no budget.
  Pipeline(const Transformer& model, const PipelineConfig& config, Communicator& group, Stream& stream);
  ~Pipeline() override;  // waits for sends in flight

  bool run(const ExecutorStep& step) override;
  LossSums losses(Stream& stream) override;
  void report(size_t slot) override;
  LossSums forward(LayerContext& ctx, const Batch& batch) override;
  void infer(LayerContext& ctx, const InferBatch& batch, const std::vector<KvCache>& caches,
             const Tensor& logits) override;
  std::vector<const Transformer::Saved*> parts() const override;

  // The list for a step of the most micro-batches.
  const std::vector<PipelineOp>& list() const { return list_; }

 private:
  struct Slot {
    Transformer::Saved saved;
    Pending activation, gradient;  // sends in flight from this rank
  };
  // The messages of one kind: activations go to the next stage, gradients to the one before. They are
  // received one at a time.
  struct Link {
    // Each group has the ranks of the pipeline. `staged` and `direct` carry tensors on a device and are null
    // on the CPU; only `direct` may be used where the host waits for nothing.
    std::unique_ptr<Communicator> host, staged, direct;
    Communicator& group(bool is_direct) const { return !direct ? *host : is_direct ? *direct : *staged; }

    int from = 0, to = 0;
    Tensor memory = {};                // (elements) room for the largest message
    std::vector<Shape> of_chunk = {};  // the message for each chunk of this rank
    std::vector<Shape> shapes = {};    // of this step's messages, in order
    size_t posted = 0;                 // number of these whose receive was started
    Tensor message = {};               // the one whose receive was started last; a view of `memory`
    Pending pending = {};
  };
  Link make_link(PipelineOp::Kind kind, std::string name, Stream& stream);
  struct Memory {
    std::vector<std::vector<Slot>> slots;  // per chunk
    std::vector<MicroBatch> batches;       // copies, per micro-batch of a step; cu_seqlens may be longer
    Tensor activation, gradient;           // messages that are received
  };
  Memory make_memory(Arena& arena) const;
  std::vector<Slot> make_slots(Arena& arena, int chunk, const RecomputePlan& plan) const;
  size_t in_flight(int chunk) const;  // micro-batches
  RecomputePlan of_stage(RecomputePlan plan, int chunk) const;
  size_t slot_bytes(int chunk, const RecomputePlan& plan) const;  // all slots of the chunk together
  int64_t blocks(int chunk) const;
  ingot::Memory arena_memory() const {
    return feed_.is_on_device() ? ingot::Memory::kDevice : ingot::Memory::kHost;
  }
  void choose_plans();
  void choose_within_budget();

  int stage(int chunk) const { return chunk * config_.shape.ranks + group_.rank(); }
  bool is_last(int stage) const { return stage + 1 == config_.shape.stages(); }
  UnitRange units(int chunk) const { return config_.plan.units(group_.rank(), chunk); }
  Slot& slot(const PipelineOp& op);
  const MicroBatch& batch(const ExecutorStep& step, int64_t micro);
  MicroPass pass(const ExecutorStep& step, const PipelineOp& op);
  bool waits_for_nothing(const ExecutorStep& step);
  std::vector<PipelineOp> list_for(const ExecutorStep& step);
  std::vector<PipelineOp> schedule(const PipelineShape& shape) const;
  void drop_unused(std::vector<PipelineOp>& list) const;

  void expect(Link& link, PipelineOp::Kind kind, const std::vector<PipelineOp>& list);
  void post(Link& link);
  void take(Link& link, const Tensor& t, Stream& stream);
  Pending send(const Link& link, const Tensor& t);
  void copy_to_host(const Tensor& sums, int chunk, StepResults* results, Stream& stream);
  LossSums perform(const PipelineOp& op, const ExecutorStep& step);
  LossSums forward_pass(const PipelineOp& op, const ExecutorStep& step);
  void backward_pass(const PipelineOp& op, const ExecutorStep& step);
  void wait_for_sends();

  const Transformer& model_;
  PipelineConfig config_;
  Communicator& group_;
  DeviceFeed feed_;
  PassRunner runner_{feed_, config_.batch.context, config_.has_graphs};
  StageClock clock_;
  std::vector<PipelineOp> list_;
  std::vector<RecomputePlan> plans_;  // per chunk
  std::unique_ptr<Arena> arena_;
  Memory memory_;
  Link activations_, gradients_;  // groups of their own, because messages within one group keep their order
  // The next members belong to the current step, or the last one.
  std::vector<MicroBatch> read_;  // the micro-batches that passes have needed so far
  bool is_direct_ = false, has_checked_loss_ = false;
  LossSums sums_;          // what the step added for the units on this rank
  int64_t evaluated_ = 0;  // micro-batches evaluated since construction
};

}  // namespace ingot
