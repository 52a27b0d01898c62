#include "ingot/train/late_steps.h"

#include <cstddef>
#include <cstring>

#include "ingot/core/copy.h"
#include "ingot/core/cuda/cuda_device.h"
#include "ingot/core/error.h"
#include "ingot/optim/cuda_verdict.h"

namespace ingot {

namespace {

// Two tensors.
size_t slot_bytes(int64_t micros) {
  return static_cast<size_t>(micros * kLossTotalsBytes + cuda::kStepVerdictBytes) + 2 * Arena::kDeviceAlign;
}

}  // namespace

LateSteps::LateSteps(int64_t micros, Backing backing)
    : micros_(micros),
      device_("late steps", slot_bytes(micros), Memory::kDevice, backing),
      pinned_("late steps of the host", kUnderWay * slot_bytes(micros), Memory::kPinned, backing) {
  if (backing == Backing::kAddresses) return;
  const Shape sums{micros_, kLossTotalsBytes}, verdict{cuda::kStepVerdictBytes};
  sums_ = device_.alloc(DType::u8, sums);
  verdict_ = device_.alloc(DType::u8, verdict);
  for (Slot& slot : slots_) {
    slot.sums = pinned_.alloc(DType::u8, sums);
    slot.verdict = pinned_.alloc(DType::u8, verdict);
    slot.read.reserve(static_cast<size_t>(micros));
    if constexpr (kHasCuda) slot.is_there = std::make_shared<cuda::Event>();
  }
}

void LateSteps::add(const Tensor& sums, Stream& stream) {
  INGOT_CHECK(added_ < micros_, "LateSteps: more than {} micro-batches", micros_);
  copy(sums_.rows(added_, added_ + 1), sums.rows(0, 1), stream);
  ++added_;
}

Tensor LateSteps::judge(const Tensor& parts, double expected_tokens, double clip_limit, Stream& stream) {
  INGOT_CHECK(under_way() < kUnderWay, "LateSteps: {} steps are under way", under_way());
  Slot& slot = slots_[judged_++ % kUnderWay];
  slot.micros = added_;
  added_ = 0;
  if constexpr (kHasCuda) {
    const Tensor sums = sums_.rows(0, slot.micros);
    cuda::judge_step(verdict_, parts, sums, expected_tokens, clip_limit, stream);
    copy(slot.sums.rows(0, slot.micros), sums, stream);
    copy(slot.verdict, verdict_, stream);
    slot.is_there->record(stream);
  }
  constexpr size_t kAt = offsetof(cuda::StepVerdict, factor);
  return Tensor(verdict_.as<uint8_t>() + kAt, DType::f32, {1}, Device::kCuda);
}

LateSteps::Step LateSteps::wait() {
  INGOT_CHECK(under_way() > 0, "LateSteps: no step is under way");
  Slot& slot = slots_[read_++ % kUnderWay];
  if constexpr (kHasCuda) slot.is_there->synchronize();
  cuda::StepVerdict verdict{};
  std::memcpy(&verdict, slot.verdict.data, sizeof verdict);
  slot.read.resize(static_cast<size_t>(slot.micros));
  std::memcpy(slot.read.data(), slot.sums.data, slot.read.size() * sizeof(LossTotals));
  return {.sums = slot.read, .norm = verdict.norm, .is_bad = verdict.is_bad != 0};
}

void LateSteps::forgive(Stream& stream) {
  fill_zero(verdict_, stream);
  synchronize(stream);
  read_ = judged_;
}

}  // namespace ingot
