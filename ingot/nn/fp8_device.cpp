#include "ingot/nn/fp8_device.h"

#include <algorithm>

#include "ingot/core/copy.h"
#include "ingot/core/cuda/cuda_device.h"
#include "ingot/ops/cuda_fp8.h"

namespace ingot {
namespace {

constexpr int64_t kSlot = 4;  // row length, so that each tensor's row begins at a multiple of 16 bytes

Tensor one(const Tensor& slots, int64_t index, int64_t numbers = 1) {
  return slots.rows(index, index + 1).reshape({kSlot}).rows(0, numbers);
}

}  // namespace

Fp8Device::Counted Fp8Device::make_counted(Arena& arena, int64_t tensors) {
  const Shape shape{tensors, kSlot};
  return {.amaxes = arena.alloc(DType::f32, shape), .counts = arena.alloc(DType::u32, shape)};
}

Fp8Device::OnDevice Fp8Device::make_on_device(Arena& arena, int64_t tensors) {
  const Shape shape{tensors, kSlot};
  return {.scales = arena.alloc(DType::f32, shape),
          .inverses = arena.alloc(DType::f32, shape),
          .fresh = arena.alloc(DType::f32, shape),
          .counted = make_counted(arena, tensors)};
}

namespace {

// Returns an arena of `times` the size that `layout` takes for the number of tensors.
template <typename Layout>
Arena arena_for(const char* name, Memory memory, Layout layout, int64_t tensors, size_t times) {
  Arena measure(name, memory);
  for (size_t i = 0; i < times; ++i) layout(measure, tensors);
  return Arena(name, measure.peak_bytes(), memory);
}

}  // namespace

Fp8Device::Fp8Device(int64_t tensors, size_t slots)
    : device_(arena_for("fp8 scales", Memory::kDevice, make_on_device, tensors, 1)),
      pinned_(arena_for("fp8 counts of the host", Memory::kPinned, make_counted, tensors, slots)),
      own_(make_on_device(device_, tensors)) {
  for (size_t i = 0; i < slots; ++i) on_host_.push_back(make_counted(pinned_, tensors));
}

void Fp8Device::begin_step(Stream& stream) {
  fill_zero(own_.fresh, stream);
  fill_zero(own_.counted.amaxes, stream);
  fill_zero(own_.counted.counts, stream);
}

Fp8Device::Operand Fp8Device::operand(Arena& scratch, const Shape& shape, DType format, Fp8Scaling scaling,
                                      Fp8Layouts layouts) {
  const bool is_by_column = scaling == Fp8Scaling::kColumns || scaling == Fp8Scaling::kTensorPower;
  const bool is_tensor = scaling == Fp8Scaling::kTensor;
  const int64_t N = shape[0], C = shape[1];
  Operand operand;
  if (is_tensor ? layouts != Fp8Layouts::kTransposed : !is_by_column)
    operand.codes = scratch.alloc(format, shape);
  if (is_tensor ? layouts != Fp8Layouts::kStraight : is_by_column)
    operand.transposed = scratch.alloc(format, {C, N});
  if (!is_tensor) operand.inverse = scratch.alloc(DType::f32, {is_by_column ? C : N});
  if (is_by_column) operand.scales = scratch.alloc(DType::f32, {C});
  return operand;
}

namespace {

// Casts x with one scale for all of it.
[[maybe_unused]] void cast_tensor(const Fp8Device::Operand& to, const Fp8Place& at, const Tensor& x,
                                  const Fp8Scale& scale, Stream& stream) {
  if constexpr (kHasCuda) {
    const DType format = to.transposed ? to.transposed.dtype : to.codes.dtype;
    using enum Fp8Scale::Source;
    if (scale.source == kValue) {
      cuda::put_fp8_scale(at.scale, at.inverse, scale.value, stream);
    } else if (scale.source == kAmax) {
      INGOT_CHECK(!x.amax || x.amax == at.fresh.data,
                  "Fp8Device: x {} has an amax, but not that of its cast (Fp8State::next_amax)",
                  x.shape.to_string());
      if (!x.amax) cuda::raise_amax(x.with_amax(at.fresh), stream);
      if (scale.merge) scale.merge(at.fresh);
      cuda::set_fp8_scale(at.scale, at.inverse, at.fresh, format, Fp8ScaleFloor::kExact, stream);
    }
    const cuda::Fp8Meter meter{at.amax, at.counts};
    if (to.transposed)
      cuda::cast_to_fp8_both_ways(to.codes, to.transposed, x, at.scale, meter, stream);
    else
      cuda::cast_to_fp8(to.codes, x, at.scale, meter, stream);
  }
}

}  // namespace

Fp8Device::Operand Fp8Device::cast(Operand to, int index, [[maybe_unused]] const Tensor& x,
                                   Fp8Scaling scaling, [[maybe_unused]] const Fp8Scale& scale,
                                   [[maybe_unused]] Stream& stream) {
  Fp8Place at = place(index);
  if (scaling == Fp8Scaling::kTensor && to.inverse) at.inverse = to.inverse;
  if (scaling == Fp8Scaling::kTensor) to.inverse = at.inverse;
  if constexpr (kHasCuda) {
    const cuda::Fp8Meter meter{at.amax, at.counts};
    if (scaling == Fp8Scaling::kTensor) {
      cast_tensor(to, at, x, scale, stream);
    } else if (scaling == Fp8Scaling::kRows) {
      cuda::cast_rows_to_fp8({to.codes, to.inverse}, x, meter, stream);
    } else {
      const auto which =
          scaling == Fp8Scaling::kColumns ? cuda::Fp8ColumnScales::kEach : cuda::Fp8ColumnScales::kOne;
      cuda::cast_columns_to_fp8({to.transposed, to.inverse}, x, to.scales, which, meter, stream);
    }
  }
  return to;
}

void Fp8Device::lay_out(History& history, int64_t tensors, int64_t steps) {
  const auto make = [&](Arena& arena) {
    return Fp8Amaxes{.amaxes = arena.alloc(DType::f32, {tensors, steps}),
                     .next = arena.alloc(DType::u32, {tensors}),
                     .limits = arena.alloc(DType::f32, {tensors})};
  };
  history.own = make(history.device);
  history.host = make(history.pinned);
}

void Fp8Device::set_history(std::span<const float> amaxes, std::span<const float> limits, Stream& stream) {
  const int64_t tensors = std::ssize(limits), steps = std::ssize(amaxes) / tensors;
  if (!history_) {
    History plan{.device = Arena("fp8 history", Memory::kDevice),
                 .pinned = Arena("fp8 history of the host", Memory::kPinned)};
    lay_out(plan, tensors, steps);
    history_.emplace(History{.device = Arena(plan.device.name(), plan.device.peak_bytes(), Memory::kDevice),
                             .pinned = Arena(plan.pinned.name(), plan.pinned.peak_bytes(), Memory::kPinned)});
    lay_out(*history_, tensors, steps);
  }
  const Fp8Amaxes &own = history_->own, &host = history_->host;
  std::ranges::copy(amaxes, host.amaxes.as<float>());
  std::fill_n(host.next.as<uint32_t>(), tensors, 0u);
  std::ranges::copy(limits, host.limits.as<float>());
  copy(own.amaxes, host.amaxes, stream);
  copy(own.next, host.next, stream);
  copy(own.limits, host.limits, stream);
  if constexpr (kHasCuda) cuda::next_fp8_scales(own_.scales, own_.inverses, own, {}, {}, stream);
}

void Fp8Device::next_scales([[maybe_unused]] const Tensor& factor, [[maybe_unused]] Stream& stream) {
  INGOT_CHECK(history_, "Fp8Device: no history on the device");
  if constexpr (kHasCuda)
    cuda::next_fp8_scales(own_.scales, own_.inverses, history_->own, own_.counted.amaxes, factor, stream);
}

Fp8Place Fp8Device::place(int index) const {
  return {.scale = one(own_.scales, index),
          .inverse = one(own_.inverses, index),
          .fresh = one(own_.fresh, index),
          .amax = one(own_.counted.amaxes, index),
          .counts = one(own_.counted.counts, index, 2)};
}

void Fp8Device::copy_to_host(size_t slot, Stream& stream) {
  copy(on_host_.at(slot).amaxes, own_.counted.amaxes, stream);
  copy(on_host_[slot].counts, own_.counted.counts, stream);
}

Fp8Stats Fp8Device::counted(size_t slot, int index) const {
  const uint32_t* counts = one(on_host_.at(slot).counts, index, 2).as<uint32_t>();
  return {.elements = 0,
          .saturated = counts[0],
          .underflowed = counts[1],
          .amax = one(on_host_[slot].amaxes, index).as<float>()[0]};
}

}  // namespace ingot
