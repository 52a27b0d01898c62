// Fp8Device: where a CUDA device casts tensors to FP8 (ops/fp8/cuda_fp8.h), their scales and what the casts
// count. Scales are made and used on the device; what it counts in a step is copied back behind it, and the
// host may read it when the next step has been given.
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

  // What was counted becomes zero.
  void begin_step(Stream& stream);

  struct Operand {
    Tensor codes = {}, turned = {};  // (N, C), (C, N) of the format, in scratch
    Tensor inverse = {};             // (1) f32, takes the scale out of a product
  };
  // Tensor `index` is cast in both layouts; scale 0: by fp8_scale of its own amax. x (N, C): f32 or bf16, N
  // and C multiples of 16.
  Operand cast(int index, const Tensor& x, DType format, float scale, Arena& scratch, Stream& stream);
  // The same with a scale for each row, a power of two: codes alone, and inverse (N); or for each column, or
  // one for all of them: turned alone, and inverse (C). e4m3.
  Operand rows(int index, const Tensor& x, Arena& scratch, Stream& stream);
  Operand columns(int index, const Tensor& x, bool is_one_scale, Arena& scratch, Stream& stream);
  // The scratch of casts of so many elements and lines in all, of two tensors, on a measuring arena.
  static void plan(Arena& arena, int64_t elements, int64_t lines);

  // For casts that others make of tensor `index`.
  Fp8Place place(int index) const;

  // Has the counts of the step copied to the host; they are there when the stream has passed, until two more
  // steps have been brought back. `slot`: of that step.
  size_t bring_back(Stream& stream);
  // Of tensor `index` in that step, but for the number of elements.
  Fp8Stats counted(size_t slot, int index) const;

 private:
  struct Counted {
    Tensor amaxes = {};  // (tensors, 4) f32, of which the first counts
    Tensor counts = {};  // (tensors, 4) u32: saturated, underflowed
  };
  Arena device_, pinned_;
  Tensor scales_ = {}, inverses_ = {};  // (tensors, 4) f32, of which the first counts
  Tensor fresh_ = {};                   // likewise: the amax of the cast at hand
  Counted counted_;
  std::array<Counted, 2> brought_;  // pinned, taken by turns
  size_t steps_brought_ = 0;
};

}  // namespace ingot
