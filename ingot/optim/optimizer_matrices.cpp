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
         .is_counted = param.is_added,
         .flops = rule->flops(param)});
  }
  const std::vector<UpdateComm::Keeps> keeps = found.plan(std::move(tasks));
  for (size_t t = 0; t < matrices_.size(); ++t) members_[matrices_[t]].keeps = keeps[t];
  return found;
}

class Optimizer::MatrixUpdates final : public MatrixWork {
 public:
  MatrixUpdates(Optimizer& optimizer, Stream& stream) : optimizer_(optimizer), stream_(stream) {}

  void prepare(size_t task, const Tensor& u) override {
    const size_t param = optimizer_.matrices_[task];
    const WorkSpan span(stream_, "momentum", moved(param, u));
    if (span.plans()) return;
    const RuleStep& step = optimizer_.steps_[param].inputs;
    if (const DeviceMatrixRule* there = device_rule_of(param))
      there->move_momentum(memory_of(param), step, u, stream_);
    else
      rule_of(param).move_momentum(memory_of(param), step, u);
  }
  void compute(size_t task, const Tensor& u) override {
    const size_t param = optimizer_.matrices_[task];
    const WorkSpan span(
        stream_, "newton-schulz",
        {.flops = rule_of(param).flops(memory_of(param).param), .bytes = 0, .dtype = DType::bf16});
    if (span.plans()) return;
    WorkLog* const log = std::exchange(stream_.work, nullptr);  // the products are in the flops above
    if (const DeviceMatrixRule* there = device_rule_of(param))
      there->orthogonalise(memory_of(param), optimizer_.steps_[param].inputs, u, optimizer_.scratch_,
                           stream_);
    else
      rule_of(param).orthogonalise(memory_of(param), u, optimizer_.scratch_, stream_);
    stream_.work = log;
  }
  void apply(size_t task, const Tensor& direction) override {
    const size_t param = optimizer_.matrices_[task];
    const WorkSpan span(stream_, "optimizer", moved(param, direction));
    if (span.plans()) return;
    optimizer_.steps_[param].prepared.direction = direction;
    if (optimizer_.is_on_device())
      optimizer_.update_on_device(param, stream_);
    else
      optimizer_.update_param(param);
  }

 private:
  Work moved(size_t param, const Tensor& direction) const {
    Work work = update_work(optimizer_.members_[param]);
    work.bytes += static_cast<double>(direction.bytes());
    return work;
  }
  const ParamState& memory_of(size_t param) const { return optimizer_.members_[param].memory; }
  const MatrixRule& rule_of(size_t param) const {
    return *optimizer_.matrix_rule_of(optimizer_.members_[param]);
  }
  // Returns null on the CPU.
  const DeviceMatrixRule* device_rule_of(size_t param) const {
    const Group& group = optimizer_.groups_[optimizer_.members_[param].group];
    return optimizer_.is_on_device() ? group.device_matrix_rule : nullptr;
  }

  Optimizer& optimizer_;
  Stream& stream_;
};

void Optimizer::update_matrices(Stream& stream) {
  MatrixUpdates work(*this, stream);
  comm_.run(work, scratch_, stream);
}

}  // namespace ingot
