#include "ingot/ops/dropout.h"

#include <algorithm>

#include "ingot/core/cuda/cuda_device.h"
#include "ingot/core/dispatch.h"
#include "ingot/core/parallel.h"
#include "ingot/core/work.h"
#include "ingot/ops/random_blocks.h"
#include "ingot/ops/simd/vec.h"

namespace ingot {

namespace cuda {  // dropout.cu
decltype(ingot::dropout) dropout;
decltype(ingot::set_dropout_place) set_dropout_place;
}  // namespace cuda

namespace {

constexpr int64_t kGrainElements = 8192;  // minimum number of elements per thread

// Processes elements [begin, end); first_index is the index of element 0 in the global batch.
template <typename T>
void drop(T* y, const T* x, int64_t begin, int64_t end, DropoutRule rule, const RandomKey& key,
          uint64_t first_index) {
  constexpr int64_t kWords = RandomBlocks::kWords;
  const RandomBlocks random(key);
  uint32_t words[kWords];
  while (begin < end) {
    const uint64_t index = first_index + static_cast<uint64_t>(begin);
    const int64_t skip = static_cast<int64_t>(index % 4);
    const int64_t count = std::min(kWords - skip, end - begin);
    random.fill(words, index / 4);
    float factor[kWords];
    for (int64_t i = 0; i < kWords; ++i) factor[i] = words[i] < rule.threshold ? 0.0f : rule.scale;
    const float* own_factor = factor + skip;
    const T* x_part = x + begin;
    T* y_part = y + begin;
    vec::for_each(count, [&](auto load, auto store) { store(y_part, load(x_part) * load(own_factor)); });
    begin += count;
  }
}

}  // namespace

void set_dropout_place([[maybe_unused]] const Tensor& place, [[maybe_unused]] uint64_t step,
                       [[maybe_unused]] int64_t token, [[maybe_unused]] int64_t row,
                       [[maybe_unused]] Stream& stream) {
  INGOT_CHECK(place.device == Device::kCuda, "set_dropout_place: the place must be on a device");
  check_tensor(place, DType::i64, {kDropoutPlace}, "set_dropout_place");
  if constexpr (kHasCuda) cuda::set_dropout_place(place, step, token, row, stream);
}

void dropout(const Tensor& y, const Tensor& x, float p, const RandomKey& key, uint64_t first_index,
             Stream& stream, const Tensor& place) {
  const OpSpan span(stream, "activation", traffic({y, x}));
  if (span.plans()) return;
  INGOT_CHECK(p >= 0 && p < 1, "dropout: p must be in [0, 1), got {}", p);
  INGOT_CHECK(x.is_contiguous(), "dropout: x must be contiguous, got {}", x.shape.to_string());
  INGOT_CHECK(key.purpose == Purpose::kDropout, "dropout: the key's purpose must be kDropout");
  check_tensor(y, x.dtype, x.shape, "dropout: y");
  INGOT_CHECK(!place || x.device == Device::kCuda, "dropout: a place is for a device");
  if (place) check_tensor(place, DType::i64, {kDropoutPlace}, "dropout: place");
  if (p == 0 && y.data == x.data) return;
  if constexpr (kHasCuda) {
    if (x.device == Device::kCuda) return cuda::dropout(y, x, p, key, first_index, stream, place);
  }
  const DropoutRule rule(p);
  with_dtype(x.dtype, __func__, [&]<typename T>() {
    parallel_for(x.elements(), kGrainElements, [&](int64_t begin, int64_t end) {
      drop(y.as<T>(), x.as<T>(), begin, end, rule, key, first_index);
    });
  });
}

}  // namespace ingot
