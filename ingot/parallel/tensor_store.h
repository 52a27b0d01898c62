// TensorStore is the store of a tensor-parallel rank: it holds the rank's shards and knows which other
// ranks hold the same parameter.
#pragma once

#include <vector>

#include "ingot/comm/communicator.h"
#include "ingot/nn/param_store.h"

namespace ingot {

class TensorStore : public TrainingStore {
 public:
  // Borrows both. own: a store of this rank's shards. group: the tensor-parallel ranks.
  TensorStore(TrainingStore& own, Communicator& group);

  const UnitBuffers& get(int unit) override { return own_.get(unit); }
  void prefetch(int unit) override { own_.prefetch(unit); }
  void release(int unit) override { own_.release(unit); }
  void grad_ready(int unit) override { own_.grad_ready(unit); }

  void begin_micro(bool is_last) override { own_.begin_micro(is_last); }
  void finish_gradients() override { own_.finish_gradients(); }
  void begin_graphs() override { own_.begin_graphs(); }
  void join() override { own_.join(); }
  void replayed() override { own_.replayed(); }
  std::vector<ParamShard> shards() override { return own_.shards(); }
  void refresh_compute(Stream& stream) override { own_.refresh_compute(stream); }
  void expand_masters(Stream& stream) override { own_.expand_masters(stream); }
  Replicas replicas(int id) const override;
  Replicas shard_group(int id) const override;

 private:
  TrainingStore& own_;
  Communicator& group_;
};

}  // namespace ingot
