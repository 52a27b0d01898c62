#include <algorithm>
#include <numeric>

#include "ingot/nn/program/passes.h"

namespace ingot {
namespace {

constexpr size_t kNotPlaced = ~size_t{0};

// Memory that one value, values in place of each other, or an operation's scratch take from one operation to
// another.
struct Buffer {
  size_t bytes = 0, begin = 0, end = 0;  // operations [begin, end)
  bool is_in_slot = false;
  size_t offset = kNotPlaced;

  bool meets(const Buffer& other) const { return begin < other.end && other.begin < end; }
};

// One block of memory that buffers use in turn.
class MemoryBlock {
 public:
  // Returns the lowest offset at which the buffer meets none that was placed.
  size_t offset_for(const Buffer& wanted) const {
    size_t offset = 0;
    for (const Buffer& placed : placed_) {  // in order of offset
      if (!placed.meets(wanted)) continue;
      if (placed.offset >= offset + wanted.bytes) break;
      offset = std::max(offset, placed.offset + placed.bytes);
    }
    return offset;
  }
  void place(Buffer& buffer, size_t offset) {
    buffer.offset = offset;
    placed_.insert(std::ranges::upper_bound(placed_, offset, {}, &Buffer::offset), buffer);
    bytes_ = std::max(bytes_, offset + buffer.bytes);
  }
  size_t bytes() const { return bytes_; }

 private:
  std::vector<Buffer> placed_;  // copies, which are read one after the other for every buffer
  size_t bytes_ = 0;
};

class AddressPass {
 public:
  AddressPass(const Builder& builder, size_t border, const std::vector<Pinned>& pinned)
      : b_(builder), border_(border), buffer_of_(builder.values().size(), -1) {
    const size_t ends = builder.ops().size();
    std::vector<size_t> begin(buffer_of_.size(), ends), end(buffer_of_.size(), 0);
    const auto use = [&](ValueId id, size_t first, size_t last) {
      if (id == kNoValue) return;
      const auto v = static_cast<size_t>(id);
      begin[v] = std::min(begin[v], first);
      end[v] = std::max(end[v], last);
    };
    for (size_t i = 0; i < ends; ++i) {
      for (const ValueId id : builder.ops()[i].in) use(id, i, i + 1);
      for (const ValueId id : builder.ops()[i].out) use(id, i, i + 1);
    }
    std::vector<bool> is_pinned(buffer_of_.size());
    for (const Pinned& pin : pinned) {
      use(pin.value, pin.begin, pin.end);
      is_pinned[static_cast<size_t>(pin.value)] = true;
    }
    for (size_t i = 0; i < ends; ++i) share_in_place(builder.ops()[i], i, end);
    for (size_t v = 0; v < buffer_of_.size(); ++v) {
      if (end[v] == 0) continue;  // no operation is left that uses it
      Buffer& buffer = buffer_for(static_cast<ValueId>(v));
      buffer.bytes = std::max(buffer.bytes, padded(bytes_of(builder.values()[v])));
      buffer.begin = std::min(buffer.begin, begin[v]);
      buffer.end = std::max(buffer.end, end[v]);
      buffer.is_in_slot |= is_pinned[v];
    }
    for (Buffer& buffer : buffers_) buffer.is_in_slot |= buffer.begin < border_ && buffer.end > border_;
  }

  size_t kept_bytes() {
    place_kept(order());
    return slot_bytes_;
  }
  Addresses run(size_t least_slot_bytes) {
    Addresses addresses;
    addresses.scratch.resize(b_.ops().size());
    addresses.scratch_sizes.resize(b_.ops().size());
    const size_t values_end = buffers_.size();
    std::vector<size_t> op_of;
    for (size_t i = 0; i < b_.ops().size(); ++i) {
      Arena measure("scratch", memory_of(b_.spec().device));
      b_.ops()[i].primitive->scratch({b_.ops()[i], b_.values()}, measure);
      addresses.scratch_sizes[i] = measure.peak_bytes();
      if (measure.peak_bytes() == 0) continue;
      op_of.push_back(i);
      buffers_.push_back({.bytes = padded(measure.peak_bytes()), .begin = i, .end = i + 1});
    }
    place_all(least_slot_bytes);
    addresses.values.resize(buffer_of_.size());
    for (size_t v = 0; v < buffer_of_.size(); ++v)
      if (buffer_of_[v] >= 0) addresses.values[v] = place_of(buffers_[static_cast<size_t>(buffer_of_[v])]);
    for (size_t i = 0; i < op_of.size(); ++i)
      addresses.scratch[op_of[i]] = place_of(buffers_[values_end + i]);
    addresses.slot_bytes = slot_bytes_;
    addresses.scratch_bytes = scratch_.bytes();
    return addresses;
  }

 private:
  static size_t bytes_of(const Value& value) {
    return static_cast<size_t>(value.shape.elements()) * size_bytes(value.dtype);
  }
  size_t padded(size_t bytes) const {
    const size_t align = b_.spec().device == Device::kCuda ? Arena::kDeviceAlign : Arena::kAlign;
    return (bytes + align - 1) / align * align;
  }
  Buffer& buffer_for(ValueId id) {
    int& buffer = buffer_of_[static_cast<size_t>(id)];
    if (buffer < 0) {
      buffer = static_cast<int>(buffers_.size());
      buffers_.push_back({.begin = kNotPlaced});
    }
    return buffers_[static_cast<size_t>(buffer)];
  }
  // Gives an output the buffer of an input. An output that only may take it does so if nothing reads the
  // input later.
  void share_in_place(const Op& op, size_t index, const std::vector<size_t>& end) {
    for (const InPlace& pair : op.in_place) {
      const ValueId in = op.in[static_cast<size_t>(pair.in)], out = op.out[static_cast<size_t>(pair.out)];
      if (in == kNoValue || out == kNoValue || buffer_of_[static_cast<size_t>(out)] >= 0) continue;
      const bool is_last_use = end[static_cast<size_t>(in)] == index + 1;
      INGOT_CHECK(!pair.is_must || is_last_use, "assign_addresses: {} is overwritten by {} and read later",
                  b_[in].name, op.primitive->name());
      if (!is_last_use || bytes_of(b_[in]) != bytes_of(b_[out])) continue;
      buffer_for(in);
      buffer_of_[static_cast<size_t>(out)] = buffer_of_[static_cast<size_t>(in)];
    }
  }
  // Returns the order in which buffers are placed: the largest first; ties in the order of the list, so that
  // all ranks have the same addresses.
  std::vector<size_t> order() const {
    std::vector<size_t> order(buffers_.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::ranges::stable_sort(order, [&](size_t a, size_t b) {
      const Buffer &x = buffers_[a], &y = buffers_[b];
      return x.bytes != y.bytes ? x.bytes > y.bytes : x.begin < y.begin;
    });
    return order;
  }
  void place_all(size_t least_slot_bytes) {
    const std::vector<size_t> order = this->order();
    place_kept(order);
    const size_t room = std::max(slot_bytes_, least_slot_bytes);
    for (const size_t i : order) {
      Buffer& buffer = buffers_[i];
      if (buffer.is_in_slot) continue;
      const size_t offset = slot_.offset_for(buffer);
      buffer.is_in_slot = offset + buffer.bytes <= room;
      if (buffer.is_in_slot)
        slot_.place(buffer, offset);
      else
        scratch_.place(buffer, scratch_.offset_for(buffer));
    }
    slot_bytes_ = std::max(slot_bytes_, slot_.bytes());
  }
  void place_kept(const std::vector<size_t>& order) {
    for (const size_t i : order)
      if (buffers_[i].is_in_slot) slot_.place(buffers_[i], slot_.offset_for(buffers_[i]));
    slot_bytes_ = slot_.bytes();
  }
  static Addresses::Place place_of(const Buffer& buffer) {
    return {buffer.is_in_slot, buffer.offset, buffer.end};
  }

  const Builder& b_;
  size_t border_;
  std::vector<int> buffer_of_;  // by value; -1: it has no memory
  std::vector<Buffer> buffers_;
  MemoryBlock slot_, scratch_;
  size_t slot_bytes_ = 0;
};

}  // namespace

Addresses assign_addresses(const Builder& builder, size_t border, const std::vector<Pinned>& pinned,
                           size_t least_slot_bytes) {
  return AddressPass(builder, border, pinned).run(least_slot_bytes);
}

size_t kept_bytes(const Builder& builder, size_t border, const std::vector<Pinned>& pinned) {
  return AddressPass(builder, border, pinned).kept_bytes();
}

}  // namespace ingot
