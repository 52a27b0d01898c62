#include "ingot/optim/update_comm.h"

#include <algorithm>

namespace ingot {
namespace {

bool is_here(const MatrixTask& task) { return !task.rects.empty(); }

}  // namespace

std::vector<UpdateComm::StatePlacement> LocalUpdate::plan(std::vector<MatrixTask> tasks) {
  tasks_ = std::move(tasks);
  std::vector<StatePlacement> keeps;
  for (const MatrixTask& task : tasks_) keeps.push_back({.elements = is_here(task), .whole = is_here(task)});
  return keeps;
}

size_t LocalUpdate::scratch_bytes(Memory memory) const {
  Arena plan("matrix update plan", memory);
  int64_t most = 0;
  for (const MatrixTask& task : tasks_) most = std::max(most, task.shape.elements());
  plan.alloc(DType::f32, {most});
  return plan.peak_bytes();
}

void LocalUpdate::run(MatrixWork& work, Arena& scratch, Stream& /*stream*/) {
  for (size_t t = 0; t < tasks_.size(); ++t) {
    if (!is_here(tasks_[t])) continue;
    const Arena::Mark mark = scratch.mark();
    const Tensor u = scratch.alloc(DType::f32, {tasks_[t].shape.elements()});
    work.prepare(t, u);
    work.compute(t, u.reshape(tasks_[t].shape));
    work.apply(t, u);
    scratch.release_to(mark);
  }
}

}  // namespace ingot
