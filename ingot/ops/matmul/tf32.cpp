#include "ingot/ops/tf32.h"

#include "ingot/ops/cuda/cuda_libraries.h"

namespace ingot {

void allow_tf32(Stream& stream, bool is_allowed) {
  if (stream.device == Device::kCuda) cuda::libraries_of(stream).allows_tf32 = is_allowed;
}

bool allows_tf32(Stream& stream) {
  return stream.device == Device::kCuda && cuda::libraries_of(stream).allows_tf32;
}

}  // namespace ingot
