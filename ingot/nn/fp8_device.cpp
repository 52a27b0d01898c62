#include "ingot/nn/fp8_device.h"

#include "ingot/core/copy.h"
#include "ingot/core/cuda_device.h"
#include "ingot/ops/cuda_fp8.h"

namespace ingot {
namespace {

constexpr int64_t kSlot = 4;  // numbers, so that each tensor's begin at a multiple of 16 bytes

Tensor one(const Tensor& slots, int64_t index, int64_t numbers = 1) {
  return slots.rows(index, index + 1).reshape({kSlot}).rows(0, numbers);
}

}  // namespace

Fp8Device::Slots Fp8Device::make_slots(int64_t tensors, Memory memory) {
  const auto lay_out = [&](Slots& slots) {
    const Shape shape{tensors, kSlot};
    for (Tensor* t : {&slots.scales, &slots.inverses, &slots.amaxes, &slots.fresh})
      *t = slots.arena.alloc(DType::f32, shape);
    slots.counts = slots.arena.alloc(DType::u32, shape);
  };
  Slots plan{.arena = Arena("fp8 scales", memory)};
  lay_out(plan);
  Slots slots{.arena = Arena("fp8 scales", plan.arena.peak_bytes(), memory)};
  lay_out(slots);
  return slots;
}

Fp8Device::Fp8Device(int64_t tensors)
    : device_(make_slots(tensors, Memory::kDevice)), host_(make_slots(tensors, Memory::kPinned)) {}

void Fp8Device::begin_step(Stream& stream) {
  fill_zero(device_.amaxes, stream);
  fill_zero(device_.counts, stream);
}

Fp8Device::Operand Fp8Device::cast([[maybe_unused]] int index, const Tensor& x, DType format,
                                   [[maybe_unused]] float scale, Arena& scratch,
                                   [[maybe_unused]] Stream& stream) {
  Operand operand{.codes = scratch.alloc(format, x.shape),
                  .turned = scratch.alloc(format, {x.dim(1), x.dim(0)}),
                  .inverse = one(device_.inverses, index)};
  if constexpr (kHasCuda) {
    const Fp8Place at = place(index);
    if (scale > 0) {  // the same in every cast of a step
      one(host_.scales, index).as<float>()[0] = scale;
      one(host_.inverses, index).as<float>()[0] = 1 / scale;
      copy(at.scale, one(host_.scales, index), stream);
      copy(at.inverse, one(host_.inverses, index), stream);
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
  return {.scale = one(device_.scales, index),
          .inverse = one(device_.inverses, index),
          .fresh = one(device_.fresh, index),
          .amax = one(device_.amaxes, index),
          .counts = one(device_.counts, index, 2)};
}

void Fp8Device::plan(Arena& arena, int64_t elements, int64_t lines) {
  constexpr int64_t kTensors = 6;
  const Arena::Mark mark = arena.mark();
  arena.alloc(DType::u8, {2 * elements + 2 * lines * static_cast<int64_t>(sizeof(float)) +
                          kTensors * static_cast<int64_t>(Arena::kDeviceAlign)});
  arena.release_to(mark);
}

void Fp8Device::bring_back(Stream& stream) {
  copy(host_.amaxes, device_.amaxes, stream);
  copy(host_.counts, device_.counts, stream);
}

Fp8Stats Fp8Device::counted(int index) const {
  const uint32_t* counts = one(host_.counts, index, 2).as<uint32_t>();
  return {.elements = 0,
          .saturated = counts[0],
          .underflowed = counts[1],
          .amax = one(host_.amaxes, index).as<float>()[0]};
}

}  // namespace ingot
