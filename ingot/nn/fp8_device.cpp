#include "ingot/nn/fp8_device.h"

#include "ingot/core/copy.h"
#include "ingot/core/cuda/cuda_device.h"
#include "ingot/ops/fp8/cuda_fp8.h"

namespace ingot {
namespace {

constexpr int64_t kSlot = 4;  // row length, so that each tensor's row begins at a multiple of 16 bytes

Tensor one(const Tensor& slots, int64_t index, int64_t numbers = 1) {
  return slots.rows(index, index + 1).reshape({kSlot}).rows(0, numbers);
}

// Bytes of a table of (tensors, kSlot) numbers, with room for its alignment.
size_t table_bytes(int64_t tensors) {
  return static_cast<size_t>(tensors * kSlot) * sizeof(float) + Arena::kDeviceAlign;
}

}  // namespace

Fp8Device::Fp8Device(int64_t tensors)
    : device_("fp8 scales", 5 * table_bytes(tensors), Memory::kDevice),
      pinned_("fp8 counts of the host", 4 * table_bytes(tensors), Memory::kPinned) {
  const Shape shape{tensors, kSlot};
  for (Tensor* t : {&scales_, &inverses_, &fresh_}) *t = device_.alloc(DType::f32, shape);
  const auto alloc = [&](Arena& arena) {
    return Counted{.amaxes = arena.alloc(DType::f32, shape), .counts = arena.alloc(DType::u32, shape)};
  };
  counted_ = alloc(device_);
  for (Counted& counted : brought_) counted = alloc(pinned_);
}

void Fp8Device::begin_step(Stream& stream) {
  fill_zero(counted_.amaxes, stream);
  fill_zero(counted_.counts, stream);
}

Fp8Device::Operand Fp8Device::cast([[maybe_unused]] int index, const Tensor& x, DType format,
                                   [[maybe_unused]] float scale, Arena& scratch,
                                   [[maybe_unused]] Stream& stream) {
  Operand operand{.codes = scratch.alloc(format, x.shape),
                  .turned = scratch.alloc(format, {x.dim(1), x.dim(0)}),
                  .inverse = one(inverses_, index)};
  if constexpr (kHasCuda) {
    const Fp8Place at = place(index);
    if (scale > 0) {
      cuda::put_fp8_scale(at.scale, at.inverse, scale, stream);
    } else {
      fill_zero(at.fresh, stream);
      cuda::raise_amax(at.fresh, x, stream);
      cuda::set_fp8_scale(at.scale, at.inverse, at.fresh, format, Fp8ScaleFloor::kExact, stream);
    }
    cuda::cast_to_fp8_both_ways(operand.codes, operand.turned, x, at.scale, {at.amax, at.counts}, stream);
  }
  return operand;
}

Fp8Device::Operand Fp8Device::rows([[maybe_unused]] int index, const Tensor& x, Arena& scratch,
                                   [[maybe_unused]] Stream& stream) {
  Operand operand{.codes = scratch.alloc(DType::f8e4m3, x.shape),
                  .inverse = scratch.alloc(DType::f32, {x.dim(0)})};
  if constexpr (kHasCuda) {
    const Fp8Place at = place(index);
    cuda::cast_rows_to_fp8({operand.codes, operand.inverse}, x, {at.amax, at.counts}, stream);
  }
  return operand;
}

Fp8Device::Operand Fp8Device::columns([[maybe_unused]] int index, const Tensor& x,
                                      [[maybe_unused]] bool is_one_scale, Arena& scratch,
                                      [[maybe_unused]] Stream& stream) {
  Operand operand{.turned = scratch.alloc(DType::f8e4m3, {x.dim(1), x.dim(0)}),
                  .inverse = scratch.alloc(DType::f32, {x.dim(1)})};
  [[maybe_unused]] const Tensor scales = scratch.alloc(DType::f32, {x.dim(1)});
  if constexpr (kHasCuda) {
    const Fp8Place at = place(index);
    cuda::cast_columns_to_fp8({operand.turned, operand.inverse}, x, scales,
                              is_one_scale ? cuda::Fp8ColumnScales::kOne : cuda::Fp8ColumnScales::kEach,
                              {at.amax, at.counts}, stream);
  }
  return operand;
}

Fp8Place Fp8Device::place(int index) const {
  return {.scale = one(scales_, index),
          .inverse = one(inverses_, index),
          .fresh = one(fresh_, index),
          .amax = one(counted_.amaxes, index),
          .counts = one(counted_.counts, index, 2)};
}

void Fp8Device::plan(Arena& arena, int64_t elements, int64_t lines) {
  constexpr int64_t kTensors = 6;
  const Arena::Mark mark = arena.mark();
  arena.alloc(DType::u8, {2 * elements + 2 * lines * static_cast<int64_t>(sizeof(float)) +
                          kTensors * static_cast<int64_t>(Arena::kDeviceAlign)});
  arena.release_to(mark);
}

size_t Fp8Device::bring_back(Stream& stream) {
  const size_t slot = steps_brought_++ % brought_.size();
  copy(brought_[slot].amaxes, counted_.amaxes, stream);
  copy(brought_[slot].counts, counted_.counts, stream);
  return slot;
}

Fp8Stats Fp8Device::counted(size_t slot, int index) const {
  const uint32_t* counts = one(brought_[slot].counts, index, 2).as<uint32_t>();
  return {.elements = 0,
          .saturated = counts[0],
          .underflowed = counts[1],
          .amax = one(brought_[slot].amaxes, index).as<float>()[0]};
}

}  // namespace ingot
