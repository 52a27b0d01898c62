#include "ingot/ops/cast.h"

#include "ingot/core/cuda/cuda_device.h"
#include "ingot/core/dispatch.h"
#include "ingot/core/parallel.h"
#include "ingot/core/work.h"

namespace ingot {

namespace cuda {  // cast.cu
decltype(ingot::cast) cast;
}  // namespace cuda

namespace {

// Assigns the bits as an integer, because copies of a struct do not vectorise.
inline void put(float& to, float x) { to = x; }
template <typename To>
void put(To& to, float x) {
  to.bits = To(x).bits;
}

// Rounds with the scalar type's constructor, which keeps subnormals, so the optimizer's copies of
// weights have the same bits.
template <typename To, typename From>
void convert(To* to, const From* from, int64_t n) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) put(to[i], static_cast<float>(from[i]));
}

}  // namespace

void cast(const Tensor& to, const Tensor& from, Stream& stream) {
  const OpSpan span(stream, "cast", traffic({to, from}));
  if (span.plans()) return;
  INGOT_CHECK(to.shape == from.shape && to.is_contiguous() && from.is_contiguous(),
              "cast: shapes must be equal and contiguous, got {} and {}", to.shape.to_string(),
              from.shape.to_string());
  if constexpr (kHasCuda) {
    if (to.device == Device::kCuda) return cuda::cast(to, from, stream);
  }
  INGOT_DISPATCH(from.dtype, From, {
    INGOT_DISPATCH(to.dtype, To, {
      parallel_for(to.elements(), kGrain, [&](int64_t begin, int64_t end) {
        convert(to.as<To>() + begin, from.as<From>() + begin, end - begin);
      });
    });
  });
}

}  // namespace ingot
