// Pipeline parallelism: executes the lists of pipeline_schedule.h; each rank holds the units of its
// stages (stage_plan.h).
//
// The model's own forward and backward compute a stage; this file adds the messages and the memory, which
// holds as many micro-batches' activations per chunk of the model as the list has in flight. Messages
// from other stages are received while the rank computes, one message of each kind ahead, into separate
// memory.
//
// On a CUDA device the host submits all of a step and waits for nothing: messages are in the order of the stream and of
// NCCL's links between neighbours (comm/device_group.h). They go through the host, which then waits for each, where ranks
// share a device or NCCL is missing, and in a step in which the host may wait for the whole device: the first, whose
// products and kernels take memory, one with a new number of documents, for which attention chooses kernels, and one that
// checks or looks at activations. Such a wait would not end while a message is awaited that depends on what this rank has
// not submitted yet.
//
// With has_graphs each pass of a step is a CUDA graph, which holds the collectives of its layers and gradients, but no
// message between stages. They are captured in a step whose messages go through the host, because that allocates memory.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <set>
#include <vector>

#include "ingot/comm/communicator.h"
#include "ingot/parallel/pipeline_schedule.h"
#include "ingot/parallel/stage_clock.h"
#include "ingot/parallel/stage_plan.h"
#include "ingot/train/device_feed.h"
#include "ingot/train/executor.h"
#include "ingot/train/pass_graphs.h"

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
  // All ranks of `group` call this; it has shape.ranks ranks. Borrows model, group and stream, on which all passes run.
  // Throws a kUsage error if the shape does not fit, or if the activations fit no budget.
  Pipeline(const Transformer& model, const PipelineConfig& config, Communicator& group, Stream& stream);
  ~Pipeline() override;  // waits for sends in flight

  bool run(const ExecutorStep& step) override;
  LossSums losses(Stream& stream) override;
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
  // The groups for messages of one kind; each has the ranks of the pipeline. `staged` and `direct` carry tensors on a
  // device and are null on the CPU; only `direct` may be used where the host waits for nothing.
  struct Route {
    std::unique_ptr<Communicator> host, staged, direct;
    Communicator& on(bool is_direct) const { return !direct ? *host : is_direct ? *direct : *staged; }
  };
  static Route make_route(Communicator& group, int step, std::string name, Stream& stream);
  // Messages of one kind from another stage, received one at a time.
  struct Inbox {
    Communicator* group = nullptr;
    int from = 0;
    Tensor memory;                // (elements) of the largest message
    std::vector<Shape> of_chunk;  // the message for each chunk of this rank
    std::vector<Shape> shapes;    // of this step's messages, in order
    size_t posted = 0;            // of those
    Tensor message;               // the one that was posted last, in the memory
    Pending pending;
  };
  struct Memory {
    std::vector<std::vector<Slot>> slots;  // per chunk
    std::vector<MicroBatch> batches;       // copies, per micro-batch of a step; first_rows may be longer
    Tensor activation, gradient;           // buffers of the inboxes
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

  int stage(int chunk) const { return chunk * config_.shape.ranks + rank_; }
  bool is_last(int stage) const { return stage + 1 == config_.shape.stages(); }
  int next() const { return (rank_ + 1) % config_.shape.ranks; }
  int previous() const { return (rank_ + config_.shape.ranks - 1) % config_.shape.ranks; }
  UnitRange units(int chunk) const { return config_.plan.units(rank_, chunk); }
  Slot& slot(const PipelineOp& op);
  MicroBatch batch(const ExecutorStep& step, int64_t micro);
  // The elements of first_rows of a micro-batch that was read.
  int64_t documents(int64_t micro) const {
    return documents_.empty() ? 0 : documents_[static_cast<size_t>(micro)];
  }
  bool has_kernels(int64_t micro) const {
    return documents_.empty() || documents_seen_.contains(documents(micro));
  }
  bool meets_new_documents(const ExecutorStep& step);
  int64_t graph_key(PipelineOp::Kind kind, int chunk, int64_t micro) const;
  const std::vector<PipelineOp>& list_for(const ExecutorStep& step);
  std::vector<PipelineOp> schedule(const PipelineShape& shape) const;
  void drop_unused(std::vector<PipelineOp>& list) const;

  void expect(Inbox& inbox, const Route& route, PipelineOp::Kind kind, const std::vector<PipelineOp>& list);
  void post(Inbox& inbox);
  void take(Inbox& inbox, const Tensor& t, Stream& stream);
  void bring_back(const Tensor& sums, int chunk, StepResultRing* results, Stream& stream);
  LossSums perform(const PipelineOp& op, const ExecutorStep& step);
  void begin_graphs(const ExecutorStep& step);
  void submit(const PipelineOp& op, const ExecutorStep& step,
              const std::function<void(LayerContext&)>& passes);
  LossSums forward_pass(const PipelineOp& op, const ExecutorStep& step);
  void backward_pass(const PipelineOp& op, const ExecutorStep& step);
  void wait_for_sends();
  StageClock& clock() { return clocks_[(runs_ - 1) % clocks_.size()]; }  // the current step's
  void report();

  const Transformer& model_;
  PipelineConfig config_;
  Communicator& group_;
  int rank_;
  // Separate groups of the same ranks, because messages within one group keep their order.
  Route activations_, gradients_;
  bool is_direct_ = false, has_run_ = false;  // is_direct_: of the current step
  int64_t window_ = 0;                        // of the last step's attention
  int64_t graph_micros_ = 0;                  // micro-batches of the step whose passes graphs_ holds
  bool is_warm_ = false;                      // passes have run, so that libraries have chosen their kernels
  bool has_graphs_ = false;                   // the current step runs as graphs
  DeviceFeed feed_;
  PassGraphs graphs_{feed_, config_.batch.context};
  std::array<StageClock, 2> clocks_;  // of this step and of the one before, which may still be under way
  size_t runs_ = 0;                   // steps run
  size_t in_flight_ = 0;              // of those, not reported yet
  bool is_asynchronous_ = false;      // the last run
  std::vector<PipelineOp> list_, other_list_;
  std::vector<RecomputePlan> plans_;  // per chunk
  int64_t other_micros_ = 0;          // the number of micro-batches of other_list_
  std::unique_ptr<Arena> arena_;
  Memory memory_;
  Inbox activation_inbox_, gradient_inbox_;
  int64_t read_ = 0;  // micro-batches of the step read so far
  bool has_documents_ = false;
  // With documents on a device, where kernels and graphs hold for one number of elements of first_rows (0 without it). The
  // vector has that of each micro-batch of the step, and is empty otherwise. The sets have those of earlier steps and
  // evaluations.
  std::vector<int64_t> documents_;
  std::set<int64_t> documents_seen_, documents_evaluated_;
  int64_t evaluated_ = 0;          // micro-batches evaluated since construction
  LossSums sums_;                  // The last run added these for the units on this rank.
  bool has_checked_loss_ = false;  // true if the last run checked tokens
};

}  // namespace ingot
