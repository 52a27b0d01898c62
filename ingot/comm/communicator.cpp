#include "ingot/comm/communicator.h"

#include <cstddef>
#include <cstring>

#include "ingot/comm/rank_order.h"

namespace ingot {
namespace {

bool is_reducible(DType dtype) {
  return dtype == DType::f32 || dtype == DType::f64 || dtype == DType::bf16 || dtype == DType::f16 ||
         dtype == DType::i32 || dtype == DType::i64;
}

class SelfCommunicator : public Communicator {
 public:
  SelfCommunicator(std::string name, std::optional<double> timeout_s)
      : Communicator(std::move(name), 0, 1), timeout_s_(timeout_s), time_limit_(timeout_s) {}

  std::unique_ptr<Communicator> split(int, int, std::string name) override {
    return self_communicator(std::move(name), timeout_s_);
  }
  TimeLimit& time_limit() override { return time_limit_; }

 private:
  uint64_t start(const CommOperation& o) override {
    if (o.out.data == o.in.data || o.in.elements() == 0) return 0;
    if (o.out.dtype == o.in.dtype) {
      std::memcpy(o.out.data, o.in.data, o.in.bytes());
    } else {  // a reduce_scatter of a 16-bit dtype into f32
      reduce_in_rank_order(o.out.data, o.out.dtype, o.in.data, o.in.dtype, 1, o.in.elements(), o.op);
    }
    return 0;
  }
  bool is_done(uint64_t) override { return true; }
  void wait(uint64_t) override {}

  std::optional<double> timeout_s_;
  TimeLimit time_limit_;
};

}  // namespace

const char* kind_name(CommOperation::Kind kind) {
  using Kind = CommOperation::Kind;
  switch (kind) {
    case Kind::kAllReduce:
      return "all_reduce";
    case Kind::kAllGather:
      return "all_gather_into";
    case Kind::kReduceScatter:
      return "reduce_scatter";
    case Kind::kAllToAll:
      return "all_to_all";
    case Kind::kBroadcast:
      return "broadcast";
    case Kind::kBarrier:
      return "barrier";
    case Kind::kSend:
      return "send";
    case Kind::kReceive:
      return "receive";
  }
  return "?";
}

bool Pending::is_done() const { return !comm_ || comm_->is_done(ticket_); }

void Pending::wait() {
  if (comm_) comm_->wait(ticket_);
  comm_ = nullptr;
}

Pending Communicator::begin(const CommOperation& o) {
  for (const Tensor* t : {&o.out, &o.in})
    INGOT_CHECK(t->is_contiguous() && (t->device == Device::kCpu || t->device == reach_),
                "{} of group {}: tensors must be contiguous and on the {}, got {} on {}", o.name, name_,
                reach_ == Device::kCpu ? "host" : "host or the device", t->shape.to_string(),
                ingot::name(t->device));
  INGOT_CHECK(o.out.device == o.in.device, "{} of group {}: tensors on two devices", o.name, name_);
  return Pending(*this, start(o));
}

Pending Communicator::start_all_reduce(std::string_view name, const Tensor& t, ReduceOp op) {
  INGOT_CHECK(is_reducible(t.dtype), "all_reduce {}: dtype must be f32, f64, bf16, f16, i32 or i64, got {}",
              name, ingot::name(t.dtype));
  return begin({.kind = CommOperation::Kind::kAllReduce, .name = name, .out = t, .in = t, .op = op});
}

Pending Communicator::start_all_gather_into(std::string_view name, const Tensor& out, const Tensor& in) {
  INGOT_CHECK(out.dtype == in.dtype && out.elements() == size_ * in.elements(),
              "all_gather_into {}: out must be {} times in, got {} {} and {} {}", name, size_,
              ingot::name(out.dtype), out.shape.to_string(), ingot::name(in.dtype), in.shape.to_string());
  return begin({.kind = CommOperation::Kind::kAllGather, .name = name, .out = out, .in = in});
}

Pending Communicator::start_reduce_scatter(std::string_view name, const Tensor& out, const Tensor& in,
                                           ReduceOp op) {
  INGOT_CHECK(
      is_reducible(in.dtype) &&
          (out.dtype == in.dtype ||
           (out.dtype == DType::f32 && (in.dtype == DType::bf16 || in.dtype == DType::f16))),
      "reduce_scatter {}: dtypes must be equal and f32, f64, bf16, f16, i32 or i64, or bf16 or f16 into f32, "
      "got {} into {}",
      name, ingot::name(in.dtype), ingot::name(out.dtype));
  INGOT_CHECK(in.elements() == size_ * out.elements(),
              "reduce_scatter {}: in must be {} times out, got {} and {}", name, size_, in.shape.to_string(),
              out.shape.to_string());
  return begin({.kind = CommOperation::Kind::kReduceScatter, .name = name, .out = out, .in = in, .op = op});
}

Pending Communicator::start_all_to_all(std::string_view name, const Tensor& out, const Tensor& in) {
  INGOT_CHECK(out.dtype == in.dtype && out.elements() == in.elements() && in.elements() % size_ == 0,
              "all_to_all {}: out and in must be equal and divide into {} blocks, got {} {} and {} {}", name,
              size_, ingot::name(out.dtype), out.shape.to_string(), ingot::name(in.dtype),
              in.shape.to_string());
  return begin({.kind = CommOperation::Kind::kAllToAll, .name = name, .out = out, .in = in});
}

Pending Communicator::start_broadcast(std::string_view name, const Tensor& t, int root) {
  INGOT_CHECK(root >= 0 && root < size_, "broadcast {}: root {} is not in a group of {}", name, root, size_);
  return begin({.kind = CommOperation::Kind::kBroadcast, .name = name, .out = t, .in = t, .peer = root});
}

Pending Communicator::start_send(std::string_view name, const Tensor& t, int to) {
  INGOT_CHECK(to >= 0 && to < size_ && to != rank_, "send {}: rank {} of {} cannot send to {}", name, rank_,
              size_, to);
  return begin({.kind = CommOperation::Kind::kSend, .name = name, .out = t, .in = t, .peer = to});
}

Pending Communicator::start_receive(std::string_view name, const Tensor& t, int from) {
  INGOT_CHECK(from >= 0 && from < size_ && from != rank_, "receive {}: rank {} of {} cannot receive from {}",
              name, rank_, size_, from);
  return begin({.kind = CommOperation::Kind::kReceive, .name = name, .out = t, .in = t, .peer = from});
}

void Communicator::barrier(std::string_view name) {
  begin({.kind = CommOperation::Kind::kBarrier, .name = name, .out = {}, .in = {}}).wait();
}

void Communicator::sum(std::span<double> values) {
  all_reduce("sum", Tensor(values.data(), DType::f64, {std::ssize(values)}));
}

void Communicator::max(std::span<double> values) {
  all_reduce("max", Tensor(values.data(), DType::f64, {std::ssize(values)}), ReduceOp::kMax);
}

void Communicator::broadcast_text(std::string& text, int root) {
  text.resize(static_cast<size_t>(broadcast_number(std::ssize(text), root)));
  broadcast("text", Tensor(text.data(), DType::u8, {std::ssize(text)}), root);
}

int64_t Communicator::broadcast_number(int64_t number, int root) {
  broadcast("number", Tensor(&number, DType::i64, {1}), root);
  return number;
}

std::unique_ptr<Communicator> self_communicator(std::string name, std::optional<double> timeout_s) {
  return std::make_unique<SelfCommunicator>(std::move(name), timeout_s);
}

std::unique_ptr<Communicator> PlannedCommunicator::split(int, int, std::string name) {
  return planned_communicator(std::move(name), rank(), size());
}

uint64_t PlannedCommunicator::start(const CommOperation& o) {
  if (o.kind != CommOperation::Kind::kAllGather) return 0;
  for (int r = 0; r < size(); ++r) {
    std::byte* place = static_cast<std::byte*>(o.out.data) + static_cast<size_t>(r) * o.in.bytes();
    if (place != o.in.data) std::memcpy(place, o.in.data, o.in.bytes());
  }
  return 0;
}

std::unique_ptr<Communicator> planned_communicator(std::string name, int rank, int size) {
  return std::make_unique<PlannedCommunicator>(std::move(name), rank, size);
}

}  // namespace ingot
