#include "ingot/nn/device_weights.h"

#include "ingot/core/copy.h"

namespace ingot {

std::vector<UnitBuffers> DeviceWeights::lay_out(Arena& arena, const ParamList& list, DType compute) {
  std::vector<UnitBuffers> units;
  for (int u = 0; u < list.units(); ++u) {
    UnitBuffers unit;
    unit.compute = arena.alloc(compute, {list.unit_elements(u)});
    unit.master = compute == DType::f32 ? unit.compute : arena.alloc(DType::f32, {list.vector_elements(u)});
    allocate_frozen(unit, list, u, compute, arena);
    units.push_back(unit);
  }
  return units;
}

size_t DeviceWeights::planned_bytes(const ParamList& list, DType compute, Device device) {
  Arena arena("weights plan", memory_of(device));
  lay_out(arena, list, compute);
  return arena.peak_bytes();
}

DeviceWeights::DeviceWeights(ParamStore& from, DType compute, Stream& stream)
    : ParamStore(from.list()),
      arena_("weights", planned_bytes(from.list(), compute, stream.device), memory_of(stream.device)),
      units_(lay_out(arena_, from.list(), compute)) {
  for (int u = 0; u < list().units(); ++u) from.wait_weights(u);
  for (int id = 0; id < static_cast<int>(list().specs().size()); ++id)
    copy(weight(id), from.weight(id), stream);
  synchronize(stream);
}

}  // namespace ingot
