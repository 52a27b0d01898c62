// The weights of a training whose units several ranks have in stages: a store of this rank's units, which for
// checkpoints are everyone's. Of a tied model the first and the last rank keep the embedding's unit both: its
// gradients are added up over the two after a step, so both make the same update.
#pragma once

#include <memory>
#include <vector>

#include "ingot/comm/communicator.h"
#include "ingot/nn/param_store.h"
#include "ingot/parallel/stage_plan.h"

namespace ingot {

class PipelineStore : public TrainingStore {
 public:
  // Borrows all. list: of the whole model. parts: of list.keeping the units that plan gives this rank. group:
  // the ranks of the pipeline, all of which call this.
  PipelineStore(const ParamList& list, TrainingStore& parts, const StagePlan& plan, Communicator& group);

  const UnitBuffers& get(int unit) override { return parts_.get(unit); }
  void prefetch(int unit) override { parts_.prefetch(unit); }
  void release(int unit) override { parts_.release(unit); }
  void grad_ready(int unit) override { parts_.grad_ready(unit); }

  void begin_micro(bool is_last) override;
  void finish_gradients() override;
  std::vector<ParamPiece> pieces() override;
  void refresh_compute(Stream& stream) override { parts_.refresh_compute(stream); }
  void expand_masters(Stream& stream) override { parts_.expand_masters(stream); }
  Holders copies(int id) const override { return is_owner(id) ? parts_.copies(id) : Holders{0, 0}; }
  Holders sharers(int id) const override { return is_owner(id) ? parts_.sharers(id) : Holders{0, 0}; }

 private:
  bool keeps_shared() const { return group_.rank() == 0 || group_.rank() == plan_.ranks - 1; }
  bool is_owner(int id) const { return plan_.owner(list()[id].unit) == group_.rank(); }

  TrainingStore& parts_;
  const StagePlan& plan_;
  Communicator& group_;
  std::unique_ptr<Communicator> ends_;  // first and last rank
  bool is_last_micro_ = true;
};

}  // namespace ingot
