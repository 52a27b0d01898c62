#include "ingot/nn/int8_weights.h"

#include <algorithm>

#include "ingot/core/copy.h"

namespace ingot {

Int8Weights::Tensors Int8Weights::lay_out(Arena& arena, const ParamList& list, DType compute) {
  Tensors tensors;
  int64_t room_bytes = 0;
  for (const ParamSpec& spec : list.specs()) {
    INGOT_CHECK(!spec.is_sharded(), "Int8Weights: {} is sharded", spec.name);
    const bool has_codes = !spec.is_vector() && spec.role != ParamRole::kPosition;
    tensors.matrices.push_back(has_codes ? alloc_int8(arena, spec.shape[0], spec.shape[1]) : Int8Matrix{});
    tensors.values.push_back(has_codes ? Tensor{}
                                       : arena.alloc(spec.is_vector() ? DType::f32 : compute, spec.shape));
    if (has_codes) room_bytes = std::max(room_bytes, int8_room_bytes(spec.shape[1], compute));
  }
  tensors.room = arena.alloc(DType::u8, {room_bytes});
  return tensors;
}

size_t Int8Weights::planned_bytes(const ParamList& list, DType compute) {
  Arena arena("weights plan");
  lay_out(arena, list, compute);
  return arena.peak_bytes();
}

Int8Weights::Int8Weights(const ParamList& list, DType compute)
    : ParamStore(list),
      arena_("weights", planned_bytes(list, compute)),
      tensors_(lay_out(arena_, list, compute)) {}

Tensor Int8Weights::weight(int id) {
  if (id < 0) return {};
  const Tensor& value = tensors_.values[static_cast<size_t>(id)];
  INGOT_CHECK(value, "Int8Weights: {} has only codes", list()[id].name);
  return value;
}

const Int8Matrix* Int8Weights::int8_weight(int id) {
  if (id < 0) return nullptr;
  const Int8Matrix& matrix = tensors_.matrices[static_cast<size_t>(id)];
  return matrix.codes ? &matrix : nullptr;
}

void Int8Weights::copy_to(ParamStore& other, Stream& stream) {
  for (int id = 0; id < static_cast<int>(list().specs().size()); ++id) {
    if (const Int8Matrix* matrix = int8_weight(id))
      int8_dequantize(other.weight(id), *matrix, stream);
    else
      copy(other.weight(id), weight(id), stream);
  }
}

}  // namespace ingot
