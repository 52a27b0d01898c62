// DeviceWeights holds a model's weights in the memory of a device as layers read them, without masters and
// gradients.
#pragma once

#include <vector>

#include "ingot/core/arena.h"
#include "ingot/core/stream.h"
#include "ingot/nn/param_store.h"

namespace ingot {

class DeviceWeights final : public ParamStore {
 public:
  // Copies the weights of `from`, whose matrices are in `compute`, to the stream's device. Returns when the
  // copy is done.
  DeviceWeights(ParamStore& from, DType compute, Stream& stream);

  static size_t planned_bytes(const ParamList& list, DType compute, Device device);

  const UnitBuffers& buffers(int unit) override { return units_[static_cast<size_t>(unit)]; }

 private:
  static std::vector<UnitBuffers> lay_out(Arena& arena, const ParamList& list, DType compute);

  Arena arena_;
  std::vector<UnitBuffers> units_;
};

}  // namespace ingot
