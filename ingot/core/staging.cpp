#include "ingot/core/staging.h"

#include "ingot/core/copy.h"

namespace ingot {

Tensor Staging::room(const Tensor& t) {
  if (t.device == Device::kCpu) return t;
  if (!arena_ || arena_->capacity_bytes() < t.bytes() + Arena::kDeviceAlign)
    arena_.emplace("staging", t.bytes() + Arena::kDeviceAlign, Memory::kPinned);
  arena_->release_to(0);
  return arena_->alloc(t.dtype, t.shape);
}

Tensor Staging::read(const Tensor& t, Stream& stream) {
  if (t.device == Device::kCpu) return t;
  const Tensor host = room(t);
  copy(host, t, stream);
  synchronize(stream);
  return host;
}

void Staging::write(const Tensor& t, Stream& stream) {
  if (t.device == Device::kCpu) return;
  copy(t, room(t), stream);
  synchronize(stream);
}

}  // namespace ingot
