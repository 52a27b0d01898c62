#include "ingot/ops/deterministic.h"

#include "ingot/ops/cuda/cuda_libraries.h"

namespace ingot {

void set_deterministic(Stream& stream, bool is_on) {
  if (stream.device == Device::kCuda) cuda::libraries_of(stream).is_deterministic = is_on;
}

bool is_deterministic(Stream& stream) {
  return stream.device != Device::kCuda || cuda::libraries_of(stream).is_deterministic;
}

}  // namespace ingot
