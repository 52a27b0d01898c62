// Fp8Device casts tensors to FP8 on a CUDA device (ops/cuda_fp8.h) and holds their scales and the
// counts of the casts. Scales are computed and used on the device. A step's counts are copied to the host
// asynchronously; the host may read them after it has submitted the next step.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "ingot/core/arena.h"
#include "ingot/core/stream.h"
#include "ingot/core/tensor.h"
#include "ingot/ops/cast_fp8.h"

namespace ingot {

// Fp8Scaling says which elements of a tensor share a scale. A scale of kTensorPower, kRows or kColumns is a
// power of two.
enum class Fp8Scaling { kTensor, kTensorPower, kRows, kColumns };

// Fp8Layouts says which copies of a tensor's codes a cast writes: (N, C), (C, N), or both. kRows always
// writes (N, C); kColumns and kTensorPower always write (C, N).
enum class Fp8Layouts { kStraight, kTransposed, kBoth };

// Fp8Scale says where a cast with the scaling kTensor takes its scale: from the amax of the tensor, which
// costs a pass over it unless an op has raised it (Tensor::with_amax); from the caller; or by using the scale
// of the last cast of the same tensor again.
struct Fp8Scale {
  enum class Source { kAmax, kValue, kLast };
  Source source = Source::kAmax;
  float value = 0;  // for kValue
  // For kAmax: if set, makes the amax (1) f32 that of the whole tensor, of which this rank has a shard.
  std::function<void(const Tensor& amax)> merge = {};
};

class Fp8Device {
 public:
  // slots: steps whose counts the host holds at one time.
  Fp8Device(int64_t tensors, size_t slots);

  // Zeroes the counts and the amaxes of casts to come.
  void begin_step(Stream& stream);

  // A cast tensor (N, C) in scratch, without what its scaling does not need.
  struct Operand {
    Tensor codes = {};       // (N, C) in the format
    Tensor transposed = {};  // (C, N) in the format
    Tensor inverse = {};  // f32; a product is multiplied by it to undo the scale: (1), (N) for kRows, or (C)
    Tensor scales = {};   // (C) f32 working memory; kTensorPower, kColumns
  };
  // Allocates an operand; that of kTensor gets its inverse from cast, unless the caller has memory for it
  // (not for kLast).
  static Operand operand(Arena& scratch, const Shape& shape, DType format, Fp8Scaling scaling,
                         Fp8Layouts layouts);
  // Casts tensor `index` into an operand of x's shape and returns it. The scalings other than kTensor ignore
  // `scale`. x (N, C) is f32, bf16 or f16, N and C multiples of 16. REQUIRES: the format is e4m3 unless the
  // scaling is kTensor; x has no amax, or place(index).fresh for it.
  Operand cast(Operand to, int index, const Tensor& x, Fp8Scaling scaling, const Fp8Scale& scale,
               Stream& stream);

  // Copies the history of delayed scaling to the device and sets the scales that follow from it. amaxes:
  // (tensors, steps), oldest first; limits: see Fp8Amaxes. REQUIRES: the stream has passed the last such
  // copy.
  void set_history(std::span<const float> amaxes, std::span<const float> limits, Stream& stream);
  // Appends the amaxes of the step to that history and sets the next scales; does nothing if factor is NaN.
  void next_scales(const Tensor& factor, Stream& stream);

  // The memory of tensor `index`, for casts that are made elsewhere.
  Fp8Place place(int index) const;

  // The amaxes of the step's casts so far, (tensors * 4) f32. Ranks that share a history take their maxima.
  Tensor amaxes() const { return own_.counted.amaxes.reshape({own_.counted.amaxes.elements()}); }

  // Starts the copy of the step's counts to a slot on the host.
  void copy_to_host(size_t slot, Stream& stream);
  // The counts of tensor `index` in a slot, without the number of elements. REQUIRES: the stream has passed
  // the copy.
  Fp8Stats counted(size_t slot, int index) const;

 private:
  struct Counted {
    Tensor amaxes = {};  // (tensors, 4) f32; only the first of the 4 is used
    Tensor counts = {};  // (tensors, 4) u32: saturated, underflowed, 2 unused
  };
  struct OnDevice {
    Tensor scales = {}, inverses = {};  // (tensors, 4) f32; only the first of the 4 is used
    Tensor fresh = {};                  // same layout; amax of the current cast
    Counted counted = {};
  };
  struct History {
    Arena device, pinned;
    Fp8Amaxes own = {}, host = {};
  };
  static void lay_out(History& history, int64_t tensors, int64_t steps);
  static Counted make_counted(Arena& arena, int64_t tensors);
  static OnDevice make_on_device(Arena& arena, int64_t tensors);

  Arena device_, pinned_;
  OnDevice own_;
  std::vector<Counted> on_host_;    // by slot; pinned
  std::optional<History> history_;  // the device's copy for delayed scaling, once it was sent
};

}  // namespace ingot
