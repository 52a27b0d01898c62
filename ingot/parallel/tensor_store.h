// TensorStore is the store of a tensor-parallel rank: it holds the rank's shards and knows which other
// ranks hold the same parameter. Where neighbouring ranks hold the same rows of a matrix (kv-heads, if there are
// more ranks than these), it sums the gradients of these rows over them, so that all of them make the same update.
#pragma once

#include <vector>

#include "ingot/comm/communicator.h"
#include "ingot/nn/param_store.h"

namespace ingot {

class TensorStore : public TrainingStore {
 public:
  // Borrows all. own: a store of this rank's shards. group: the tensor-parallel ranks. head_group: those with the same
  // rows, for tensors in the store's memory; null if no rank shares any.
  TensorStore(TrainingStore& own, Communicator& group, Communicator* head_group);

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
  std::vector<ParamShard> shards() override { return own_.shards(); }
  void refresh_compute(Stream& stream) override { own_.refresh_compute(stream); }
  void expand_masters(Stream& stream) override { own_.expand_masters(stream); }
  Replicas replicas(int id) const override;
  Replicas shard_group(int id) const override;

 private:
  TrainingStore& own_;
  Communicator& group_;
  Communicator* head_group_;
  bool is_last_micro_ = true;
};

}  // namespace ingot
