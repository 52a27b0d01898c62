#include "ingot/core/copy.h"

#include <cstring>

#include "ingot/core/cuda/cuda_device.h"
#include "ingot/core/parallel.h"
#include "ingot/core/work.h"

namespace ingot {

namespace cuda {  // cuda_device.cu
decltype(ingot::copy) copy;
decltype(ingot::fill_zero) fill_zero;
}  // namespace cuda

void copy(const Tensor& to, const Tensor& from, Stream& stream) {
  INGOT_CHECK(to.dtype == from.dtype && to.shape == from.shape, "copy: {} {} from {} {}", name(to.dtype),
              to.shape.to_string(), name(from.dtype), from.shape.to_string());
  INGOT_CHECK(to.is_contiguous() && from.is_contiguous(), "copy: both sides must be contiguous, {}",
              to.shape.to_string());
  if (from.bytes() == 0) return;
  const WorkSpan span(stream, "copy", traffic({to, from}));
  if (span.plans()) return;
  if constexpr (kHasCuda) {
    if (stream.device == Device::kCuda) return cuda::copy(to, from, stream);
  }
  INGOT_CHECK(to.device == Device::kCpu && from.device == Device::kCpu,
              "copy: a stream of the CPU cannot reach device memory");
  std::memcpy(to.data, from.data, from.bytes());
}

void fill_zero(const Tensor& t, Stream& stream) {
  INGOT_CHECK(t.is_contiguous(), "fill_zero: {} is strided", t.shape.to_string());
  if (t.bytes() == 0) return;
  const WorkSpan span(stream, "zero", traffic({t}));
  if (span.plans()) return;
  if constexpr (kHasCuda) {
    if (t.device == Device::kCuda) return cuda::fill_zero(t, stream);
  }
  parallel_for(static_cast<int64_t>(t.bytes()), kGrain * static_cast<int64_t>(sizeof(float)),
               [&](int64_t begin, int64_t end) {
                 std::memset(static_cast<char*>(t.data) + begin, 0, static_cast<size_t>(end - begin));
               });
}

void synchronize([[maybe_unused]] Stream& stream) {
  if constexpr (kHasCuda) {
    if (stream.device == Device::kCuda && stream.backing == Backing::kMemory) cuda::synchronize(stream);
  }
}

}  // namespace ingot
