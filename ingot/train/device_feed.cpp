#include "ingot/train/device_feed.h"

#include <algorithm>
#include <cstring>

#include "ingot/core/copy.h"
#include "ingot/ops/dropout.h"

namespace ingot {
namespace {

MicroBatch make_batch(Arena& arena, const BatchShape& shape) {
  const Shape bt{shape.batch, shape.context};
  MicroBatch batch{
      .tokens = arena.alloc(DType::i32, bt), .targets = arena.alloc(DType::i32, bt), .doc_start = {}};
  if (shape.document_mask) batch.doc_start = arena.alloc(DType::i32, bt);
  return batch;
}

}  // namespace

void DeviceFeed::lay_out(Buffers& buffers, const BatchShape& shape, int64_t micros) {
  buffers.there = make_batch(buffers.device, shape);
  buffers.place = buffers.device.alloc(DType::i64, {kDropoutPlace});
  buffers.batches.clear();
  buffers.sums.clear();
  for (int64_t i = 0; i < 2 * micros; ++i) buffers.batches.push_back(make_batch(buffers.pinned, shape));
  for (int64_t i = 0; i < micros; ++i)
    buffers.sums.push_back(buffers.pinned.alloc(DType::u8, {1 + kCheckSums, kLossTotalsBytes}));
}

DeviceFeed::DeviceFeed(Device device, const BatchShape& shape, int64_t micros, Backing backing)
    : device_(device) {
  if (!is_on_device()) return;
  Buffers plan{.device = Arena("batch", Memory::kDevice),
               .pinned = Arena("batches of the host", Memory::kPinned)};
  lay_out(plan, shape, micros);
  buffers_.emplace(
      Buffers{.device = Arena(plan.device.name(), plan.device.peak_bytes(), Memory::kDevice, backing),
              .pinned = Arena(plan.pinned.name(), plan.pinned.peak_bytes(), Memory::kPinned, backing)});
  lay_out(*buffers_, shape, micros);
  received_.reserve(static_cast<size_t>(micros));
}

void DeviceFeed::begin_step(size_t steps_in_flight) {
  INGOT_CHECK(steps_in_flight <= 1, "DeviceFeed: {} steps are in flight", steps_in_flight);
  passed_ = std::max(passed_, steps_in_flight == 0 ? sent_ : step_begin_);
  step_begin_ = sent_;
  brought_ = 0;
}

MicroBatch DeviceFeed::send(const Batch& batch, Stream& stream) {
  if (!is_on_device()) return {batch.tokens, batch.targets, batch.doc_start};
  if (sent_ - passed_ == buffers_->batches.size()) {  // no slot is free before the copies are done
    synchronize(stream);
    passed_ = sent_;
  }
  const MicroBatch& slot = buffers_->batches[sent_++ % buffers_->batches.size()];
  const auto pass = [&](const Tensor& to, const Tensor& through, const Tensor& from) {
    if (!to) return;
    std::memcpy(through.data, from.data, from.bytes());
    copy(to, through, stream);
  };
  pass(buffers_->there.tokens, slot.tokens, batch.tokens);
  pass(buffers_->there.targets, slot.targets, batch.targets);
  pass(buffers_->there.doc_start, slot.doc_start, batch.doc_start);
  return buffers_->there;
}

void DeviceFeed::bring_back(const Tensor& sums, Stream& stream) {
  if (!is_on_device()) return;
  INGOT_CHECK(brought_ < buffers_->sums.size(), "DeviceFeed: {} micro-batches are under way", brought_);
  copy(buffers_->sums[brought_++], sums, stream);
}

std::span<const LossSums> DeviceFeed::receive(Stream& stream) {
  received_.clear();
  if (!is_on_device()) return received_;
  synchronize(stream);
  for (size_t i = 0; i < brought_; ++i) received_.push_back(read_sums(buffers_->sums[i]));
  passed_ = sent_;
  brought_ = 0;
  return received_;
}

std::vector<const Arena*> DeviceFeed::arenas() const {
  if (!is_on_device()) return {};
  return {&buffers_->device, &buffers_->pinned};
}

}  // namespace ingot
