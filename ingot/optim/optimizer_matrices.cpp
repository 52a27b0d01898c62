// The optimizer's updates by matrix rules. UpdateComm decides in which order they run, and on which rank each
// direction is computed.
#include <memory>
#include <utility>
#include <vector>

#include "ingot/core/work.h"
#include "ingot/optim/optimizer.h"

namespace ingot {

UpdateComm& Optimizer::plan_matrices(UpdateComm* comm) {
  if (!comm) own_ = std::make_unique<LocalUpdate>();
  UpdateComm& found = comm ? *comm : *own_;
  std::vector<MatrixTask> tasks;
  for (size_t i = 0; i < members_.size(); ++i) {
    const MatrixRule* rule = matrix_rule_of(members_[i]);
    if (!rule) continue;
    const OptimParam& param = members_[i].memory.param;
    static_cast<void>(rule->state(param));  // throws for a vector
    matrices_.push_back(i);
    tasks.push_back(
        {.name = param.name,
         .shape = param.whole(),
         .rects = param.is_shard() ? param.rects : std::vector<Rect>{{0, param.shape[0], 0, param.shape[1]}},
         .is_added = param.is_added,
         .flops = rule->flops(param)});
  }
  const std::vector<UpdateComm::StatePlacement> keeps = found.plan(std::move(tasks));
  for (size_t t = 0; t < matrices_.size(); ++t) members_[matrices_[t]].keeps = keeps[t];
  return found;
}

class Optimizer::MatrixUpdates final : public MatrixWork {
 public:
  MatrixUpdates(Optimizer& optimizer, Stream& stream) : optimizer_(optimizer), stream_(stream) {}

  void prepare(size_t task, const Tensor& u) override {
    const Member& member = member_of(task);
    const WorkSpan span(stream_, "momentum", update_work(member, u));
    if (!span.plans()) rule_of(task).move_momentum(member.memory, member.step, u, stream_);
  }
  void compute(size_t task, const Tensor& u) override {
    const Member& member = member_of(task);
    const WorkSpan span(
        stream_, "newton-schulz",
        {.flops = rule_of(task).flops(member.memory.param), .bytes = 0, .dtype = DType::bf16});
    if (span.plans()) return;
    WorkLog* const log = std::exchange(stream_.work, nullptr);  // the products are in the flops above
    rule_of(task).orthogonalise(member.memory, member.step, u, optimizer_.scratch_, stream_);
    stream_.work = log;
  }
  void apply(size_t task, const Tensor& direction) override {
    optimizer_.update_param(optimizer_.matrices_[task], direction, stream_);
  }

 private:
  const Member& member_of(size_t task) const { return optimizer_.members_[optimizer_.matrices_[task]]; }
  const MatrixRule& rule_of(size_t task) const { return *optimizer_.matrix_rule_of(member_of(task)); }

  Optimizer& optimizer_;
  Stream& stream_;
};

void Optimizer::update_matrices(Stream& stream) {
  MatrixUpdates work(*this, stream);
  comm_.run(work, scratch_, stream);
}

}  // namespace ingot
