#include "ingot/train/whole_tensors.h"

#include <string>

namespace ingot {
namespace {

constexpr const char* kNoMore = "no more";

}  // namespace

Tensor WholeTensors::make(size_t number) {
  TrainingStore& params = trainer_.params();
  if (number < pieces_.size()) {
    const ParamPiece& piece = pieces_[number];
    return params.is_sharded() ? params.whole(piece.id, piece.w, params.list()[piece.id].shape)
                               : params.master(piece.id);
  }
  const Optimizer::State& state = trainer_.optimizer().states()[number - pieces_.size()];
  return params.whole(state.param, state.tensor, state.whole);
}

Tensor WholeTensors::ask(size_t number) {
  if (trainer_.params().is_sharded()) {
    std::string request = std::to_string(number);
    trainer_.reducers().all.broadcast(request, 0);
  }
  return make(number);
}

void WholeTensors::finish() {
  if (!trainer_.params().is_sharded()) return;
  std::string request = kNoMore;
  trainer_.reducers().all.broadcast(request, 0);
}

void WholeTensors::answer() {
  if (!trainer_.params().is_sharded()) return;
  while (true) {
    std::string request;
    trainer_.reducers().all.broadcast(request, 0);
    if (request == kNoMore) return;
    make(std::stoul(request));
  }
}

}  // namespace ingot
