#include "ingot/parallel/tensor_store.h"

#include <algorithm>
#include <cstring>

namespace ingot {

TensorStore::TensorStore(TrainingStore& parts, Communicator& group)
    : TrainingStore(parts.list(), parts.masters()), parts_(parts), group_(group) {
  arenas_ = parts.arenas();
  is_sharded_ = true;
}

// Where a rank has nothing its bits are zero, so the sum of all ranks' bits is every number as it was.
Tensor TensorStore::whole(int id, const Tensor& piece, const Shape& shape) {
  const ParamSpec& spec = list()[id];
  if (!spec.is_sharded()) return parts_.whole(id, piece, shape);
  INGOT_CHECK(shape.elements() == spec.full_shape().elements(),
              "TensorStore: state of {} must have a number per element, got {}", spec.name,
              shape.to_string());
  const Tensor part = parts_.whole(id, piece, {spec.elements()});
  const size_t number_bytes = size_bytes(part.dtype);
  const size_t words = (static_cast<size_t>(shape.elements()) * number_bytes + 3) / 4;
  bits_.assign(words, 0);
  auto* to = reinterpret_cast<std::byte*>(bits_.data());
  const auto* from = static_cast<const std::byte*>(part.data);
  for_each_range(spec, [&](int64_t here, int64_t full, int64_t count) {
    std::memcpy(to + static_cast<size_t>(full) * number_bytes,
                from + static_cast<size_t>(here) * number_bytes, static_cast<size_t>(count) * number_bytes);
  });
  group_.all_reduce("whole tensor", Tensor(bits_.data(), DType::i32, {std::ssize(bits_)}));
  return Tensor(bits_.data(), part.dtype, shape);
}

}  // namespace ingot
