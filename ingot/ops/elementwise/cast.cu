#include "ingot/ops/cast.h"

#include <limits>

#include "ingot/core/cuda/cuda_elementwise.h"

namespace ingot::cuda {
namespace {

template <int W, typename To, typename From>
struct Convert {
  To* to;
  const From* from;

  __device__ void operator()(int64_t i) const { store(to + i, load<W>(from + i)); }
};

// Reads two tensors and writes two.
template <int W, typename T>
struct RoundWithFeedback {
  T* to;
  const float* from;
  float* residual;

  __device__ void operator()(int64_t i) const {
    Floats<W> wanted = load<W>(from + i), error = load<W>(static_cast<const float*>(residual + i));
#pragma unroll
    for (int k = 0; k < W; ++k) {
      wanted.at[k] += error.at[k];
      error.at[k] = wanted.at[k] - rounded<T>(wanted.at[k]);
      if (!(std::fabs(error.at[k]) <= std::numeric_limits<float>::max())) error.at[k] = 0;
    }
    store(to + i, wanted);
    store(residual + i, error);
  }
};

}  // namespace

void cast(const Tensor& to, const Tensor& from, Stream& stream) {
  const int64_t n = to.elements();
  with_dtype(to.dtype, "cast", [&]<typename To>() {
    with_dtype(from.dtype, "cast", [&]<typename From>() {
      with_width<bf16>(allows_wide(n, to, from), [&](auto width) {
        constexpr int W = decltype(width)::value;
        launch_elementwise<W>(n, "cast", stream, Convert<W, To, From>{to.as<To>(), from.as<From>()});
      });
    });
  });
}

void cast_with_feedback(const Tensor& to, const Tensor& from, const Tensor& residual, Stream& stream) {
  const int64_t n = to.elements();
  const auto round_to = [&](auto* target) {
    using T = std::remove_pointer_t<decltype(target)>;
    with_width<float>(allows_wide(n, to, from, residual), [&](auto width) {
      constexpr int W = decltype(width)::value;
      launch_elementwise<W>(n, "cast_with_feedback", stream,
                            RoundWithFeedback<W, T>{target, from.as<float>(), residual.as<float>()});
    });
  };
  if (to.dtype == DType::bf16)
    round_to(to.as<bf16>());
  else
    round_to(to.as<f16>());
}

}  // namespace ingot::cuda
