// Pipeline parallelism: runs the lists of pipeline_schedule.h. Each rank has the units of its stages
// (chunks), and of a tied model the first and the last rank have the embedding's table both; their gradients
// of it are added up after the step.
//
// The model's own forward and backward do a stage's work; what is here are the messages and the memory: as
// many micro-batches' activations per chunk as the list has in flight.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "ingot/comm/communicator.h"
#include "ingot/nn/transformer.h"
#include "ingot/parallel/pipeline_schedule.h"

namespace ingot {

struct PipelineConfig {
  PipelineShape shape;
  std::vector<int> first_units;  // of split_units, of shape.stages() stages
  RecomputeConfig recompute = {};
  int64_t B = 1, T = 1;  // of a micro-batch
};

class Pipeline {
 public:
  // Called by all ranks of the group, which is of shape.ranks. Borrows the model. kUsage error for a shape or
  // a recompute policy that does not fit.
  Pipeline(const Transformer& model, const PipelineConfig& config, Communicator& group);

  // Units [first, end) of this rank's chunk.
  UnitRange units(int chunk) const;
  // Whether this rank reads or changes the parameters of a unit.
  bool needs(int unit) const;

  // One step: gradients of grad_scale * (sum of losses) over batches[0 .. micros), one per micro-batch, every
  // rank having all of them. context(micro) is called for each pass. The losses are those that this rank
  // computed: all on the last, none elsewhere.
  LossSums run(const std::function<LayerContext(int64_t micro)>& context, std::span<const MicroBatch> batches,
               float grad_scale);
  // The embedding's gradient of a tied model: the sum over the two ranks that have it. After run, by all
  // ranks.
  void add_tied_gradients(ParamStore& params);

  // Of the last step: the fraction of it that this rank waited for messages.
  double measured_bubble() const { return step_s_ > 0 ? wait_s_ / step_s_ : 0; }
  const std::vector<PipelineOp>& list() const { return list_; }
  const Arena& arena() const { return *arena_; }

 private:
  struct Slot {
    Transformer::Saved saved;
    Pending activation, gradient;  // on their way from here
  };
  std::vector<std::vector<Slot>> make_slots(Arena& arena) const;
  Slot& slot(const PipelineOp& op);
  void receive(Communicator& from_group, const Tensor& t, int from);
  int next() const { return (group_rank_ + 1) % config_.shape.ranks; }
  int previous() const { return (group_rank_ + config_.shape.ranks - 1) % config_.shape.ranks; }

  const Transformer& model_;
  PipelineConfig config_;
  int group_rank_;
  // Activations, gradients: two groups of the same ranks, as messages of one keep their order.
  std::unique_ptr<Communicator> activations_, gradients_, tied_;
  std::vector<PipelineOp> list_;
  std::unique_ptr<Arena> arena_;
  std::vector<std::vector<Slot>> slots_;  // per chunk
  double wait_s_ = 0, step_s_ = 0;
};

}  // namespace ingot
