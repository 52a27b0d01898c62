// The weights of a training whose products several ranks share: a store of this rank's parts that knows who
// else has them.
#pragma once

#include <vector>

#include "ingot/comm/communicator.h"
#include "ingot/nn/param_store.h"

namespace ingot {

class TensorStore : public TrainingStore {
 public:
  // Borrows both. group: the tensor-parallel ranks.
  TensorStore(TrainingStore& parts, Communicator& group);

  const UnitBuffers& get(int unit) override { return parts_.get(unit); }
  void prefetch(int unit) override { parts_.prefetch(unit); }
  void release(int unit) override { parts_.release(unit); }
  void grad_ready(int unit) override { parts_.grad_ready(unit); }

  void begin_micro(bool is_last) override { parts_.begin_micro(is_last); }
  void finish_gradients() override { parts_.finish_gradients(); }
  std::vector<ParamPiece> pieces() override { return parts_.pieces(); }
  void refresh_compute(Stream& stream) override { parts_.refresh_compute(stream); }
  void expand_masters(Stream& stream) override { parts_.expand_masters(stream); }
  Holders copies(int id) const override;
  Holders sharers(int id) const override;

 private:
  TrainingStore& parts_;
  Communicator& group_;
};

}  // namespace ingot
