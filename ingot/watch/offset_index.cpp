#include "ingot/watch/offset_index.h"

namespace ingot {

void OffsetIndex::add(double x, uint64_t offset) {
  constexpr size_t kMaxEntries = 8192;
  if (!entries_.empty() && offset < entries_.back().offset + stride_bytes_) return;
  if (entries_.size() >= kMaxEntries) {
    for (size_t i = 0; 2 * i < entries_.size(); ++i) entries_[i] = entries_[2 * i];
    entries_.resize((entries_.size() + 1) / 2);
    stride_bytes_ *= 2;
  }
  entries_.push_back({x, offset});
}

uint64_t OffsetIndex::offset_before(double x) const {
  uint64_t offset = 0;
  for (const Entry& entry : entries_) {
    if (entry.x >= x) break;
    offset = entry.offset;
  }
  return offset;
}

std::optional<uint64_t> OffsetIndex::offset_after(double x) const {
  for (const Entry& entry : entries_)
    if (entry.x > x) return entry.offset;
  return std::nullopt;
}

}  // namespace ingot
