// Fp8Device casts tensors to FP8 on a CUDA device (ops/fp8/cuda_fp8.h) and holds their scales and the
// counts of the casts. Scales are computed and used on the device. A step's counts are copied to the host
// asynchronously; the host may read them after it has submitted the next step.
#pragma once

#include <array>
#include <cstddef>

#include "ingot/core/arena.h"
#include "ingot/core/stream.h"
#include "ingot/core/tensor.h"
#include "ingot/ops/cast_fp8.h"

namespace ingot {

class Fp8Device {
 public:
  explicit Fp8Device(int64_t tensors);

  // Zeroes the counts.
  void begin_step(Stream& stream);

  struct Operand {
    Tensor codes = {}, turned = {};  // (N, C) and (C, N) in the format, in scratch
    Tensor inverse = {};             // (1) f32; a product is multiplied by it to undo the scale
  };
  // Casts tensor `index` in both layouts. With scale 0 the scale is fp8_scale of the tensor's own amax.
  // x (N, C) is f32 or bf16, N and C multiples of 16.
  Operand cast(int index, const Tensor& x, DType format, float scale, Arena& scratch, Stream& stream);
  // Cast to e4m3 with scales that are powers of two. rows: one scale per row; fills only codes and inverse
  // (N). columns: one scale per column, or a common one with is_one_scale; fills only turned and inverse (C).
  Operand rows(int index, const Tensor& x, Arena& scratch, Stream& stream);
  Operand columns(int index, const Tensor& x, bool is_one_scale, Arena& scratch, Stream& stream);
  // Allocates, on a measuring arena, the scratch for the casts of a product's two operands, which have
  // `elements` elements and `lines` scaled rows or columns in total.
  static void plan(Arena& arena, int64_t elements, int64_t lines);

  // The memory of tensor `index`, for casts that are made elsewhere.
  Fp8Place place(int index) const;

  // Starts the copy of the step's counts to the host and returns its slot. The counts are valid once the
  // stream has passed the copy, until bring_back has been called twice more.
  size_t bring_back(Stream& stream);
  // The counts of tensor `index` in the step of a slot, without the number of elements.
  Fp8Stats counted(size_t slot, int index) const;

 private:
  struct Counted {
    Tensor amaxes = {};  // (tensors, 4) f32; only the first of the 4 is used
    Tensor counts = {};  // (tensors, 4) u32: saturated, underflowed, 2 unused
  };
  Arena device_, pinned_;
  Tensor scales_ = {}, inverses_ = {};  // (tensors, 4) f32; only the first of the 4 is used
  Tensor fresh_ = {};                   // same layout; amax of the current cast
  Counted counted_;
  std::array<Counted, 2> brought_;  // pinned, used in turn
  size_t steps_brought_ = 0;
};

}  // namespace ingot
