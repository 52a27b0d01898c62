// PipelineStore is the store of a rank whose pipeline stages hold some of the model's units. It lists the
// parameters of the whole model, for checkpoints, and holds those of this rank's units. In a tied model
// both the first and the last rank hold the embedding's unit; its gradients are summed over the two after
// each step, so both make the same update.
#pragma once

#include <memory>
#include <vector>

#include "ingot/comm/communicator.h"
#include "ingot/nn/param_store.h"
#include "ingot/parallel/stage_plan.h"

namespace ingot {

class PipelineStore : public TrainingStore {
 public:
  // Borrows all arguments but the plan. list: the whole model. own: a store of list.keeping(the units that
  // the plan assigns to this rank), in the memory of the stream. group: the ranks of the pipeline, all of which call this.
  PipelineStore(const ParamList& list, TrainingStore& own, StagePlan plan, Communicator& group,
                Stream& stream);

  const UnitBuffers& get(int unit) override { return own_.get(unit); }
  const UnitBuffers& buffers(int unit) override { return own_.buffers(unit); }
  void prefetch(int unit) override { own_.prefetch(unit); }
  void release(int unit) override { own_.release(unit); }
  void grad_ready(int unit) override { own_.grad_ready(unit); }
  OldGradients open_gradients(int unit) override { return own_.open_gradients(unit); }

  void begin_step() override { own_.begin_step(); }
  void begin_micro(bool is_last) override;
  void finish_gradients() override;
  void begin_graphs() override { own_.begin_graphs(); }
  void join() override { own_.join(); }
  void replayed(const StoreState& after) override { own_.replayed(after); }
  const StoreState& state() const override { return own_.state(); }
  std::vector<ParamShard> shards() override;
  void refresh_compute(Stream& stream) override { own_.refresh_compute(stream); }
  void expand_masters(Stream& stream) override { own_.expand_masters(stream); }
  Replicas replicas(int id) const override { return is_owner(id) ? own_.replicas(id) : Replicas{0, 0}; }
  Replicas shard_group(int id) const override { return is_owner(id) ? own_.shard_group(id) : Replicas{0, 0}; }

 private:
  bool keeps_shared() const { return group_.rank() == 0 || group_.rank() == plan_.ranks - 1; }
  bool is_owner(int id) const { return plan_.owner(list()[id].unit) == group_.rank(); }

  TrainingStore& own_;
  StagePlan plan_;
  Communicator& group_;
  std::unique_ptr<Communicator> ends_, device_ends_;  // first and last rank; the second is null on the CPU
  bool is_last_micro_ = true;
};

}  // namespace ingot
