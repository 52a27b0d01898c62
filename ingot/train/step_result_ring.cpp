#include "ingot/train/step_result_ring.h"

#include <cstddef>
#include <cstring>

#include "ingot/core/copy.h"
#include "ingot/core/cuda/cuda_device.h"
#include "ingot/core/error.h"
#include "ingot/optim/cuda_step_check.h"

namespace ingot {

namespace {

// Bytes of the sums and the verdict of one step.
size_t slot_bytes(int64_t micros) {
  return static_cast<size_t>(micros * kLossTotalsBytes + cuda::kStepCheckBytes) + 2 * Arena::kDeviceAlign;
}

}  // namespace

StepResultRing::StepResultRing(int64_t micros, Backing backing)
    : micros_(micros),
      device_("step results", slot_bytes(micros), Memory::kDevice, backing),
      pinned_("step results on the host", kDepth * slot_bytes(micros), Memory::kPinned, backing) {
  if (backing == Backing::kAddresses) return;
  const Shape sums{micros_, kLossTotalsBytes}, verdict{cuda::kStepCheckBytes};
  sums_ = device_.alloc(DType::u8, sums);
  verdict_ = device_.alloc(DType::u8, verdict);
  for (Slot& slot : slots_) {
    slot.sums = pinned_.alloc(DType::u8, sums);
    slot.verdict = pinned_.alloc(DType::u8, verdict);
    slot.read.reserve(static_cast<size_t>(micros));
    if constexpr (kHasCuda) slot.is_there = std::make_shared<cuda::Event>();
  }
}

void StepResultRing::add(const Tensor& sums, Stream& stream) {
  INGOT_CHECK(added_ < micros_, "StepResultRing: more than {} micro-batches", micros_);
  copy(sums_.rows(added_, added_ + 1), sums.rows(0, 1), stream);
  ++added_;
}

Tensor StepResultRing::judge(const Tensor& parts, double expected_tokens, double clip_limit, Stream& stream) {
  INGOT_CHECK(in_flight() < kDepth, "StepResultRing: {} steps are in flight", in_flight());
  Slot& slot = slots_[judged_++ % kDepth];
  slot.micros = added_;
  added_ = 0;
  if constexpr (kHasCuda) {
    const Tensor sums = sums_.rows(0, slot.micros);
    cuda::check_step(verdict_, parts, sums, expected_tokens, clip_limit, stream);
    copy(slot.sums.rows(0, slot.micros), sums, stream);
    copy(slot.verdict, verdict_, stream);
    slot.is_there->record(stream);
  }
  constexpr size_t kAt = offsetof(cuda::StepCheck, factor);
  return Tensor(verdict_.as<uint8_t>() + kAt, DType::f32, {1}, Device::kCuda);
}

StepResultRing::Step StepResultRing::wait() {
  INGOT_CHECK(in_flight() > 0, "StepResultRing: no step is in flight");
  Slot& slot = slots_[read_++ % kDepth];
  if constexpr (kHasCuda) slot.is_there->synchronize();
  cuda::StepCheck verdict{};
  std::memcpy(&verdict, slot.verdict.data, sizeof verdict);
  slot.read.resize(static_cast<size_t>(slot.micros));
  std::memcpy(slot.read.data(), slot.sums.data, slot.read.size() * sizeof(LossTotals));
  return {.sums = slot.read, .norm = verdict.norm, .is_bad = verdict.is_bad != 0};
}

void StepResultRing::reset(Stream& stream) {
  fill_zero(verdict_, stream);
  synchronize(stream);
  read_ = judged_;
}

}  // namespace ingot
