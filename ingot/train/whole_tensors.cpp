#include "ingot/train/whole_tensors.h"

#include <algorithm>
#include <cstring>
#include <string>

namespace ingot {
namespace {

constexpr const char* kNoMore = "no more";

}  // namespace

Shape full_shape(const ParamSpec& spec, const Shape& part) {
  if (!spec.is_sharded()) return part;
  INGOT_CHECK(part.elements() == spec.elements(), "full_shape: state of {} must have a number per element",
              spec.name);
  return part.rank() == spec.shape.rank() ? spec.full_shape() : Shape{spec.full_shape().elements()};
}

void copy_part(std::byte* to, const std::byte* full, const ParamSpec& spec, int64_t begin, int64_t end,
               size_t element_bytes) {
  if (!spec.is_sharded()) {
    std::memcpy(to, full + static_cast<size_t>(begin) * element_bytes,
                static_cast<size_t>(end - begin) * element_bytes);
    return;
  }
  for_each_range(spec, [&](int64_t here, int64_t at, int64_t count) {
    const int64_t first = std::max(here, begin), last = std::min(here + count, end);
    if (first >= last) return;
    std::memcpy(to + static_cast<size_t>(first - begin) * element_bytes,
                full + static_cast<size_t>(at + first - here) * element_bytes,
                static_cast<size_t>(last - first) * element_bytes);
  });
}

Tensor WholeTensors::make(size_t number) {
  TrainingStore& params = trainer_.params();
  if (number < pieces_.size()) {
    const ParamPiece& piece = pieces_[number];
    return params.is_sharded() ? params.whole(piece.id, piece.w, params.list()[piece.id].full_shape())
                               : staging_.read(params.master(piece.id), trainer_.stream());
  }
  const Optimizer::State& state = trainer_.optimizer().states()[number - pieces_.size()];
  const Tensor piece = staging_.read(state.tensor, trainer_.stream());
  return params.whole(state.param, piece, full_shape(params.list()[state.param], state.whole));
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
