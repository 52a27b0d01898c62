#include "ingot/parallel/pipeline_store.h"

namespace ingot {

PipelineStore::PipelineStore(const ParamList& list, TrainingStore& parts, const StagePlan& plan,
                             Communicator& group)
    : TrainingStore(list, parts.masters()), parts_(parts), plan_(plan), group_(group) {
  ends_ = group.split(keeps_shared() ? 0 : 1, group.rank(), "pp ends");
  arenas_ = parts.arenas();
  is_sharded_ = group.size() > 1;
}

void PipelineStore::begin_micro(bool is_last) {
  is_last_micro_ = is_last;
  parts_.begin_micro(is_last);
}

void PipelineStore::finish_gradients() {
  parts_.finish_gradients();
  if (!is_last_micro_ || !keeps_shared()) return;
  for (const ParamPiece& piece : parts_.pieces())
    if (plan_.is_shared(list()[piece.id].unit)) ends_->all_reduce("tied gradients", piece.grad);
}

std::vector<ParamPiece> PipelineStore::pieces() {
  std::vector<ParamPiece> pieces = parts_.pieces();
  for (ParamPiece& piece : pieces)
    if (plan_.is_shared(list()[piece.id].unit)) piece.is_counted = group_.rank() == 0;
  return pieces;
}

}  // namespace ingot
