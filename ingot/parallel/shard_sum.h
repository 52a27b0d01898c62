// Sums elements that several ranks hold over these ranks, once per step, so that all of them make the same
// update.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "ingot/comm/communicator.h"
#include "ingot/core/parallel.h"
#include "ingot/nn/param_store.h"
#include "ingot/parallel/stage_plan.h"

namespace ingot {

class ShardSum final : public GradientReduction {
 public:
  // Returns the elements of a parameter that the ranks of the group share.
  using Elements = std::function<Range(const ParamSpec& spec)>;
  // Borrows store and group, which carries tensors of the store's memory.
  ShardSum(TrainingStore& store, Communicator& group, std::string name, Elements elements);

  void start_step() override;
  void wait() override;
  std::vector<GradientSum> sums() const override;

 private:
  TrainingStore& store_;
  Communicator& group_;
  std::string name_;
  Elements elements_;
  std::vector<Pending> pending_;
};

// The rows of matrices that neighbouring tensor-parallel ranks share: kv-heads, if there are more ranks than
// these.
std::unique_ptr<ShardSum> shared_heads_sum(TrainingStore& store, Communicator& head_group);
// The embedding of a tied model, which both the first and the last stage hold. ends: their two ranks.
std::unique_ptr<ShardSum> tied_sum(TrainingStore& store, const StagePlan& plan, Communicator& ends);

}  // namespace ingot
