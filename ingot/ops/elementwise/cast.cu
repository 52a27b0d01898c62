#include "ingot/ops/cast.h"

#include "ingot/ops/cuda/cuda_elementwise.h"

namespace ingot::cuda {
namespace {

template <int W, typename To, typename From>
struct Convert {
  To* to;
  const From* from;

  __device__ void operator()(int64_t i) const { store(to + i, load<W>(from + i)); }
};

}  // namespace

void cast(const Tensor& to, const Tensor& from, Stream& stream) {
  const int64_t n = to.elements();
  with_dtype(to.dtype, "cast", [&](auto to_value) {
    with_dtype(from.dtype, "cast", [&](auto from_value) {
      using To = decltype(to_value);
      using From = decltype(from_value);
      with_width<bf16>(allows_wide(n, to, from), [&](auto width) {
        constexpr int W = decltype(width)::value;
        launch_elementwise<W>(n, "cast", stream, Convert<W, To, From>{to.as<To>(), from.as<From>()});
      });
    });
  });
}

}  // namespace ingot::cuda
