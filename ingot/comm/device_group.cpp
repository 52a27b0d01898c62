#include "ingot/comm/device_group.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "ingot/comm/nccl_group.h"
#include "ingot/core/arena.h"
#include "ingot/core/copy.h"
#include "ingot/core/cuda/cuda_device.h"

namespace ingot {
namespace {

using Kind = CommOperation::Kind;

// The pinned memory of one operation.
class Place {
 public:
  // Returns the operation with host tensors: one tensor for both operands, or two if out and in differ.
  CommOperation on_host(const CommOperation& o) {
    const bool is_one =
        o.kind != Kind::kAllGather && o.kind != Kind::kReduceScatter && o.kind != Kind::kAllToAll;
    const size_t wanted = o.out.bytes() + (is_one ? 0 : o.in.bytes()) + 2 * Arena::kDeviceAlign;
    if (!arena_ || arena_->capacity_bytes() < wanted) arena_.emplace("staged", wanted, Memory::kPinned);
    arena_->release_to(0);
    CommOperation there = o;
    there.out = arena_->alloc(o.out.dtype, o.out.shape);
    there.in = is_one ? there.out : arena_->alloc(o.in.dtype, o.in.shape);
    return there;
  }

 private:
  std::optional<Arena> arena_;
};

class StagedGroup final : public Communicator {
 public:
  StagedGroup(Communicator& host, Stream& stream)
      : Communicator(host.name(), host.rank(), host.size(), stream.device), host_(host), stream_(stream) {}
  StagedGroup(std::unique_ptr<Communicator> host, Stream& stream) : StagedGroup(*host, stream) {
    owned_ = std::move(host);
  }

  std::unique_ptr<Communicator> split(int color, int key, std::string name) override {
    return std::make_unique<StagedGroup>(host_.split(color, key, std::move(name)), stream_);
  }
  std::unique_ptr<OperationNotes> notes(std::string group) override { return host_.notes(std::move(group)); }
  TimeLimit& time_limit() override { return host_.time_limit(); }

 private:
  struct Slot {
    bool is_used = false;
    Pending pending;
    Tensor there, result;  // on the host; its place on the device, empty if nothing is copied back
    Place place;
  };

  uint64_t start(const CommOperation& o) override {
    const size_t index = free_slot();
    Slot& slot = slots_[index];
    slot.is_used = true;
    slot.there = slot.result = {};
    if (o.in.device == Device::kCpu) {
      slot.pending = relay(host_, o);
      return index;
    }
    // This also makes sure that the slot's previous result has been copied out of its pinned memory.
    synchronize(stream_);
    const CommOperation there = slot.place.on_host(o);
    if (o.kind != Kind::kReceive) copy(there.in, o.in, stream_);
    synchronize(stream_);
    if (o.kind != Kind::kSend) slot.there = there.out, slot.result = o.out;
    slot.pending = relay(host_, there);
    return index;
  }

  bool is_done(uint64_t ticket) override { return slots_[ticket].pending.is_done(); }

  void wait(uint64_t ticket) override {
    Slot& slot = slots_[ticket];
    slot.pending.wait();
    if (slot.result) copy(slot.result, slot.there, stream_);
    slot.is_used = false;
  }

  size_t free_slot() {
    for (size_t i = 0; i < slots_.size(); ++i)
      if (!slots_[i].is_used) return i;
    slots_.emplace_back();
    return slots_.size() - 1;
  }

  Communicator& host_;
  Stream& stream_;
  std::unique_ptr<Communicator> owned_;  // host_, if split() made it
  std::vector<Slot> slots_;
};

// Links of NCCL between neighbours of a ring.
class Ring final : public Communicator {
 public:
  Ring(Communicator& host, int step, Stream& stream)
      : Communicator(host.name(), host.rank(), host.size(), stream.device),
        staged_(staged_group(host, stream)),
        next_((rank() + size() + step) % size()),
        previous_((rank() + size() - step) % size()) {}

  // All ranks make their links in one order, so that no two wait for each other.
  void connect(Communicator& host, int step, Stream& stream) {
    for (int from = 0; from < size(); ++from) {
      const int to = (from + size() + step) % size();
      const bool is_end = rank() == from || rank() == to;
      auto pair =
          host.split(is_end ? 0 : 1, rank() == from ? 0 : 1, fmt::format("{}, link {}", name(), from));
      if constexpr (kHasCuda && kHasNccl) {
        if (is_end) (rank() == from ? out_ : in_) = nccl::make_link(std::move(pair), stream);
      }
    }
  }

  std::unique_ptr<Communicator> split(int color, int key, std::string name) override {
    return staged_->split(color, key, std::move(name));
  }
  std::unique_ptr<OperationNotes> notes(std::string group) override {
    return staged_->notes(std::move(group));
  }
  TimeLimit& time_limit() override { return staged_->time_limit(); }

 private:
  uint64_t start(const CommOperation& o) override {
    const auto found = std::ranges::find(pending_, false, &Message::is_used);
    Message& message = found == pending_.end() ? pending_.emplace_back() : *found;
    message.is_used = true;
    message.pending = start_on_link(o);
    return static_cast<uint64_t>(&message - pending_.data());
  }
  Pending start_on_link(const CommOperation& o) {
    if (o.in.device == Device::kCpu) return relay(*staged_, o);
    const bool is_send = o.kind == Kind::kSend;
    INGOT_CHECK((is_send && o.peer == next_) || (o.kind == Kind::kReceive && o.peer == previous_),
                "{} of ring {}: {} with rank {}", o.name, name(), kind_name(o.kind), o.peer);
    return is_send ? out_->start_send(o.name, o.out, 1) : in_->start_receive(o.name, o.out, 0);
  }
  bool is_done(uint64_t ticket) override { return pending_[ticket].pending.is_done(); }
  void wait(uint64_t ticket) override {
    pending_[ticket].pending.wait();
    pending_[ticket].is_used = false;
  }

  struct Message {
    bool is_used = false;
    Pending pending;
  };
  std::unique_ptr<Communicator> staged_, out_, in_;
  int next_, previous_;
  std::vector<Message> pending_;
};

}  // namespace

Pending relay(Communicator& group, const CommOperation& o) {
  switch (o.kind) {
    case Kind::kAllReduce:
      return group.start_all_reduce(o.name, o.out, o.op);
    case Kind::kAllGather:
      return group.start_all_gather_into(o.name, o.out, o.in);
    case Kind::kReduceScatter:
      return group.start_reduce_scatter(o.name, o.out, o.in, o.op);
    case Kind::kAllToAll:
      return group.start_all_to_all(o.name, o.out, o.in);
    case Kind::kBroadcast:
      return group.start_broadcast(o.name, o.out, o.peer);
    case Kind::kSend:
      return group.start_send(o.name, o.out, o.peer);
    case Kind::kReceive:
      return group.start_receive(o.name, o.out, o.peer);
    case Kind::kBarrier:
      group.barrier(o.name);
  }
  return {};
}

std::unique_ptr<Communicator> staged_group(Communicator& host, Stream& stream) {
  return std::make_unique<StagedGroup>(host, stream);
}

std::unique_ptr<Communicator> staged_group(std::unique_ptr<Communicator> host, Stream& stream) {
  return std::make_unique<StagedGroup>(std::move(host), stream);
}

std::unique_ptr<Communicator> device_ring(Communicator& host, int step, Stream& stream) {
  if constexpr (kHasCuda && kHasNccl) {
    if (stream.device == Device::kCuda && nccl::can_use(host)) {
      auto ring = std::make_unique<Ring>(host, step, stream);
      ring->connect(host, step, stream);
      return ring;
    }
  }
  return staged_group(host, stream);
}

std::unique_ptr<Communicator> device_group(Communicator& host, Stream& stream) {
  if constexpr (kHasCuda) {
    if constexpr (kHasNccl) {
      if (stream.device == Device::kCuda)
        if (nccl::can_use(host)) return nccl::make_group(host, stream);
    }
  }
  return staged_group(host, stream);
}

}  // namespace ingot
