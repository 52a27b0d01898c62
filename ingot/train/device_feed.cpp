#include "ingot/train/device_feed.h"

#include <algorithm>
#include <cstring>

#include "ingot/core/copy.h"
#include "ingot/ops/dropout.h"

namespace ingot {
namespace {

// Returns how many documents of N tokens AttentionConfig::cu_seqlens takes.
int64_t most_documents(int64_t N) { return N / kLeastDocumentTokens; }

MicroBatch make_batch(Arena& arena, const BatchShape& shape) {
  const Shape bt{shape.batch, shape.context};
  MicroBatch batch{
      .tokens = arena.alloc(DType::i32, bt), .targets = arena.alloc(DType::i32, bt), .doc_start = {}};
  if (shape.document_mask) {
    batch.doc_start = arena.alloc(DType::i32, bt);
    batch.cu_seqlens = arena.alloc(DType::i32, {DeviceFeed::max_cu_seqlens(shape)});
  }
  return batch;
}

}  // namespace

int64_t DeviceFeed::max_cu_seqlens(const BatchShape& shape) {
  return most_documents(shape.batch * shape.context) + 1;
}

void DeviceFeed::lay_out(Buffers& buffers, const BatchShape& shape, int64_t micros) {
  buffers.there = make_batch(buffers.device, shape);
  buffers.place = buffers.device.alloc(DType::i64, {kDropoutPlace});
  buffers.batches.clear();
  buffers.sums.clear();
  for (size_t i = 0; i < kStepSlots * static_cast<size_t>(micros); ++i)
    buffers.batches.push_back(make_batch(buffers.pinned, shape));
  for (int64_t i = 0; i < micros; ++i)
    buffers.sums.push_back(buffers.pinned.alloc(DType::u8, {1 + kCheckSums, kLossTotalsBytes}));
}

DeviceFeed::DeviceFeed(Device device, const BatchShape& shape, int64_t micros, Backing backing)
    : device_(device), micros_(static_cast<size_t>(micros)) {
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

void DeviceFeed::begin_step(size_t slot) {
  INGOT_CHECK(slot < kStepSlots, "DeviceFeed: there is no slot {}", slot);
  begin_ = slot * micros_;
  sent_ = brought_ = 0;
}

MicroBatch DeviceFeed::send(const Batch& batch, Stream& stream) {
  if (!is_on_device()) return {batch.tokens, batch.targets, batch.doc_start, {}, batch.reference};
  if (sent_ == micros_) {  // none is free before the copies are done
    synchronize(stream);
    sent_ = 0;
  }
  const MicroBatch& slot = buffers_->batches[begin_ + sent_++];
  const auto pass = [&](const Tensor& to, const Tensor& through, const Tensor& from) {
    if (!to) return;
    std::memcpy(through.data, from.data, from.bytes());
    copy(to, through, stream);
  };
  pass(buffers_->there.tokens, slot.tokens, batch.tokens);
  pass(buffers_->there.targets, slot.targets, batch.targets);
  pass(buffers_->there.doc_start, slot.doc_start, batch.doc_start);
  MicroBatch sent = buffers_->there;
  sent.cu_seqlens = send_cu_seqlens(slot.cu_seqlens, batch.doc_start, stream);
  return sent;
}

Tensor DeviceFeed::send_cu_seqlens(const Tensor& slot, const Tensor& doc_start, Stream& stream) {
  if (!doc_start) return {};
  const int64_t N = doc_start.elements(), T = doc_start.dim(1), most = most_documents(N);
  const int32_t* starts = doc_start.as<int32_t>();
  int32_t* rows = slot.as<int32_t>();
  int64_t count = 0;
  for (int64_t i = 0; i < N; ++i) {
    if (starts[i] != i % T) continue;
    if (count == most) return {};
    rows[count++] = static_cast<int32_t>(i);
  }
  while (documents_ < count) documents_ = std::min(most, std::max<int64_t>(1, 2 * documents_));
  std::fill(rows + count, rows + documents_ + 1, static_cast<int32_t>(N));
  const Tensor there = buffers_->there.cu_seqlens.rows(0, documents_ + 1);
  copy(there, slot.rows(0, documents_ + 1), stream);
  return there;
}

void DeviceFeed::copy_to_host(const Tensor& sums, Stream& stream) {
  if (!is_on_device()) return;
  INGOT_CHECK(brought_ < buffers_->sums.size(), "DeviceFeed: {} micro-batches are in flight", brought_);
  copy(buffers_->sums[brought_++], sums, stream);
}

std::span<const LossSums> DeviceFeed::receive(Stream& stream) {
  received_.clear();
  if (!is_on_device()) return received_;
  synchronize(stream);
  for (size_t i = 0; i < brought_; ++i) received_.push_back(read_sums(buffers_->sums[i]));
  sent_ = brought_ = 0;
  return received_;
}

std::vector<const Arena*> DeviceFeed::arenas() const {
  if (!is_on_device()) return {};
  return {&buffers_->device, &buffers_->pinned};
}

}  // namespace ingot
