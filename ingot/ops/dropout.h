// Dropout (Srivastava et al. 2014): y = x / (1 - p) where the element is kept, 0 where it is dropped.
//
// The mask is a pure function: element i is dropped if random_word(key, first_index + i) < p * 2^32.
// Backward therefore recomputes the mask, and every split of a batch into micro-batches and ranks drops
// the same elements.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "ingot/core/philox.h"
#include "ingot/core/stream.h"
#include "ingot/core/tensor.h"

namespace ingot {

// An element is dropped if its random word is below the threshold; otherwise it is multiplied by the scale.
struct DropoutRule {
  uint32_t threshold;
  float scale;
  explicit DropoutRule(double p)
      : threshold(static_cast<uint32_t>(std::min(std::round(p * 0x1p32), 4294967295.0))),
        scale(static_cast<float>(1 / (1 - p))) {}
};

// A replayed CUDA graph repeats the arguments of its kernels, so what changes from step to step can lie in
// memory: a place is (kDropoutPlace) i64 on the device, or empty. The key's step, the index of the first
// token and that of the first batch row are then the place's.
enum : int { kPlaceStep, kPlaceToken, kPlaceRow, kDropoutPlace };
void set_dropout_place(const Tensor& place, uint64_t step, int64_t token, int64_t row, Stream& stream);

// x, y: any shape, f32, bf16 or f16, of one dtype, contiguous. y may alias x; with p = 0 an in-place call
// does nothing. key: Purpose::kDropout, stream = the site in the model. first_index: index of x's first
// element in the global batch; with a place, its token times x's last dim is added. The gradient is the same
// function: dx = dropout(dy). REQUIRES: 0 <= p < 1; a place only on a CUDA device.
void dropout(const Tensor& y, const Tensor& x, float p, const RandomKey& key, uint64_t first_index,
             Stream& stream, const Tensor& place = {});

}  // namespace ingot
