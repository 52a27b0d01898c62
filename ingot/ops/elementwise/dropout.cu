#include "ingot/ops/dropout.h"

#include "ingot/core/cuda/cuda_elementwise.h"

namespace ingot::cuda {
namespace {

// A wide thread begins at a multiple of four, so it draws whole blocks of four words.
template <int W, typename T>
struct Drop {
  T* y;
  const T* x;
  DropoutRule rule;
  RandomKey key;
  uint64_t first_index;
  const int64_t* place;  // or null
  int64_t row;           // elements

  __device__ void operator()(int64_t i) const {
    Floats<W> v = load<W>(x + i);
    uint64_t index = first_index + static_cast<uint64_t>(i);
    RandomKey at = key;
    if (place) {
      at.step = static_cast<uint64_t>(place[kPlaceStep]);
      index += static_cast<uint64_t>(place[kPlaceToken] * row);
    }
    if constexpr (W % 4 == 0) {
#pragma unroll
      for (int block = 0; block < W / 4; ++block) {
        const Philox4 words = random_block(at, index / 4 + block);
#pragma unroll
        for (int k = 0; k < 4; ++k) v.at[4 * block + k] *= words[k] < rule.threshold ? 0.0f : rule.scale;
      }
    } else {
      v.at[0] *= random_word(at, index) < rule.threshold ? 0.0f : rule.scale;
    }
    store(y + i, v);
  }
};

__global__ void put_place(int64_t* place, int64_t step, int64_t token, int64_t row) {
  place[kPlaceStep] = step;
  place[kPlaceToken] = token;
  place[kPlaceRow] = row;
}

}  // namespace

void set_dropout_place(const Tensor& place, uint64_t step, int64_t token, int64_t row, Stream& stream) {
  launch({stream, "set_dropout_place", dim3(1), dim3(1)}, put_place, place.as<int64_t>(),
         static_cast<int64_t>(step), token, row);
}

void dropout(const Tensor& y, const Tensor& x, float p, const RandomKey& key, uint64_t first_index,
             Stream& stream, const Tensor& place) {
  const int64_t n = x.elements(), row = x.dim(x.shape.rank() - 1);
  with_dtype(x.dtype, "dropout", [&]<typename T>() {
    with_width<T>(allows_wide(n, y, x) && first_index % 4 == 0 && (!place || row % 4 == 0), [&](auto width) {
      constexpr int W = decltype(width)::value;
      launch_elementwise<W>(
          n, "dropout", stream,
          Drop<W, T>{y.as<T>(), x.as<T>(), DropoutRule(p), key, first_index, optional<int64_t>(place), row});
    });
  });
}

}  // namespace ingot::cuda
