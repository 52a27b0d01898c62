#include "ingot/train/step_results.h"

#include <cstddef>
#include <cstring>

#include "ingot/core/copy.h"
#include "ingot/core/cuda/cuda_device.h"
#include "ingot/core/error.h"
#include "ingot/optim/cuda_step_check.h"

namespace ingot {

namespace {

size_t device_bytes(int64_t micros, int64_t ranks) {
  return static_cast<size_t>(micros * kLossTotalsBytes + ranks * cuda::kRankSumsBytes +
                             cuda::kStepCheckBytes) +
         3 * Arena::kDeviceAlign;
}

constexpr size_t kPinnedBytes = kStepSlots * (cuda::kStepCheckBytes + Arena::kDeviceAlign);

}  // namespace

StepResults::StepResults(int64_t micros, const Ranks& ranks, Backing backing)
    : micros_(micros),
      ranks_(ranks),
      device_("step results", device_bytes(micros, ranks.count), Memory::kDevice, backing),
      pinned_("step results on the host", kPinnedBytes, Memory::kPinned, backing) {
  if (backing == Backing::kAddresses) return;
  const int64_t own = ranks.group ? ranks.group->rank() : 0;
  sums_ = device_.alloc(DType::u8, {micros_, kLossTotalsBytes});
  all_ = device_.alloc(DType::u8, {ranks.count, cuda::kRankSumsBytes});
  own_ = all_.rows(own, own + 1).reshape({cuda::kRankSumsBytes});
  verdict_ = device_.alloc(DType::u8, {cuda::kStepCheckBytes});
  for (Slot& slot : slots_) {
    slot.verdict = pinned_.alloc(DType::u8, {cuda::kStepCheckBytes});
    if constexpr (kHasCuda) slot.is_there = std::make_shared<cuda::Event>();
  }
}

void StepResults::add(const Tensor& sums, Stream& stream) {
  INGOT_CHECK(added_ < micros_, "StepResults: more than {} micro-batches", micros_);
  copy(sums_.rows(added_, added_ + 1), sums.rows(0, 1), stream);
  ++added_;
}

Tensor StepResults::check_step(size_t slot, const Tensor& parts, double expected_tokens, double clip_limit,
                               Stream& stream) {
  [[maybe_unused]] Slot& own = slots_[slot];
  [[maybe_unused]] const Tensor sums = sums_.rows(0, added_);
  added_ = 0;
  if constexpr (kHasCuda) {
    cuda::sum_step(own_, parts, sums, {ranks_.counts_squares, ranks_.counts_losses}, stream);
    if (ranks_.group) ranks_.group->all_gather_into("verdict", all_, own_);
    cuda::check_step(verdict_, all_, expected_tokens, clip_limit, stream);
    copy(own.verdict, verdict_, stream);
    own.is_there->record(stream);
  }
  constexpr size_t kAt = offsetof(cuda::StepCheck, factor);
  return Tensor(verdict_.as<uint8_t>() + kAt, DType::f32, {1}, Device::kCuda);
}

StepResults::Step StepResults::wait(size_t slot) {
  const Slot& own = slots_[slot];
  if constexpr (kHasCuda) own.is_there->synchronize();
  cuda::StepCheck verdict{};
  std::memcpy(&verdict, own.verdict.data, sizeof verdict);
  return {.sums = {.loss = verdict.loss, .counted = verdict.counted, .correct = verdict.correct},
          .norm = verdict.norm,
          .is_bad = verdict.is_bad != 0};
}

void StepResults::reset(Stream& stream) {
  fill_zero(verdict_, stream);
  synchronize(stream);
}

}  // namespace ingot
