// Communicator: a group of ranks with collectives and messages on Tensors.
//
// All ranks of a group start the same collectives in the same order, with equal sizes. A collective is
// started, runs concurrently with the caller's work, and is waited for; the plain forms do both. From the
// start to the end of wait() its tensors belong to the communicator. Collectives of one group run in the
// order in which they were started. send and receive are independent of the collectives and of each
// other, but messages between two ranks keep their order.
//
// Sums are taken in rank order. 16-bit floats are added in f32 and rounded once, so every rank gets the same
// bits, and the bits do not depend on the transport (NCCL is the exception, see comm/device_group.h).
//
// Tensors lie on the host. A group made for a device (comm/device_group.h) accepts tensors on that device
// too: an operation then reads the results of all work submitted to the device's stream before it was
// started, and work submitted after wait() sees its result.
//
// Traces and the watchdog show an operation's name (at most 47 bytes of it). If a transport fails, or a
// rank does not arrive within the time limit, the job ends on all ranks. Only one thread at a time may
// start and wait.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "ingot/core/tensor.h"
#include "ingot/core/time_limit.h"

namespace ingot {

enum class ReduceOp { kSum, kMax, kMin };

struct CommOperation {
  enum class Kind {
    kAllReduce,
    kAllGather,
    kReduceScatter,
    kAllToAll,
    kBroadcast,
    kBarrier,
    kSend,
    kReceive
  };
  Kind kind = Kind::kBarrier;
  std::string_view name;
  Tensor out, in;  // output and input; the same tensor for all_reduce, broadcast and messages
  ReduceOp op = ReduceOp::kSum;
  int peer = 0;  // root of a broadcast, or the other rank of a message
};

const char* kind_name(CommOperation::Kind kind);  // "all_reduce"

class Communicator;

// Pending is an operation in progress. The caller must wait for it before destroying it.
class [[nodiscard]] Pending {
 public:
  Pending() = default;  // no operation: is_done() is true and wait() returns at once
  Pending(Communicator& comm, uint64_t ticket) : comm_(&comm), ticket_(ticket) {}
  bool is_done() const;
  void wait();

 private:
  Communicator* comm_ = nullptr;
  uint64_t ticket_ = 0;
};

// Tells the watchdog which operation of a group runs on a device; they run one after the other. Thread-safe.
class OperationNotes {
 public:
  virtual ~OperationNotes() = default;
  virtual void begin(const char* kind, const std::string& name) = 0;
  virtual void end() = 0;
};

class Communicator {
 public:
  // reach: the device whose tensors can be operands, in addition to host tensors.
  Communicator(std::string name, int rank, int size, Device reach = Device::kCpu)
      : name_(std::move(name)), rank_(rank), size_(size), reach_(reach) {}
  virtual ~Communicator() = default;
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  const std::string& name() const { return name_; }  // name of the group, for example "dp"
  int rank() const { return rank_; }                 // within the group
  int size() const { return size_; }

  // t = op over the ranks' t. f32, f64, bf16, f16, i32 or i64.
  Pending start_all_reduce(std::string_view name, const Tensor& t, ReduceOp op = ReduceOp::kSum);
  // out (size * n) = the ranks' in (n), in rank order. Any dtype. `in` may be this rank's slice of out.
  Pending start_all_gather_into(std::string_view name, const Tensor& out, const Tensor& in);
  // out (n) = slice `rank` of (op over the ranks' in (size * n)). f32, f64, bf16, f16, i32 or i64. If in is
  // bf16 or f16, out may be f32 and is then not rounded. `out` may be this rank's slice of in.
  Pending start_reduce_scatter(std::string_view name, const Tensor& out, const Tensor& in,
                               ReduceOp op = ReduceOp::kSum);
  // Slice r of out (size * n) = slice `rank` of rank r's in (size * n). Any dtype. out and in do not overlap.
  Pending start_all_to_all(std::string_view name, const Tensor& out, const Tensor& in);
  // t = the root's t. Any dtype.
  Pending start_broadcast(std::string_view name, const Tensor& t, int root);
  // A message of any dtype. REQUIRES: sender and receiver pass tensors of equal size.
  Pending start_send(std::string_view name, const Tensor& t, int to);
  Pending start_receive(std::string_view name, const Tensor& t, int from);

  void all_reduce(std::string_view name, const Tensor& t, ReduceOp op = ReduceOp::kSum) {
    start_all_reduce(name, t, op).wait();
  }
  void all_gather_into(std::string_view name, const Tensor& out, const Tensor& in) {
    start_all_gather_into(name, out, in).wait();
  }
  void reduce_scatter(std::string_view name, const Tensor& out, const Tensor& in,
                      ReduceOp op = ReduceOp::kSum) {
    start_reduce_scatter(name, out, in, op).wait();
  }
  void broadcast(std::string_view name, const Tensor& t, int root) { start_broadcast(name, t, root).wait(); }
  void send(std::string_view name, const Tensor& t, int to) { start_send(name, t, to).wait(); }
  void receive(std::string_view name, const Tensor& t, int from) { start_receive(name, t, from).wait(); }
  void barrier(std::string_view name);

  // Small messages about the run, such as losses, flags and texts. Every rank gets the same bits.
  void sum(std::span<double> values);
  void max(std::span<double> values);
  double sum(double value) {
    sum(std::span(&value, 1));
    return value;
  }
  double max(double value) {
    max(std::span(&value, 1));
    return value;
  }
  bool is_any(bool value) { return max(value ? 1 : 0) > 0; }
  // Replaces `text` by the root's.
  void broadcast_text(std::string& text, int root);
  int64_t broadcast_number(int64_t number, int root);

  // Makes the group of all ranks that pass the same color, in order of (key, rank). All ranks of this
  // group call it.
  virtual std::unique_ptr<Communicator> split(int color, int key, std::string name) = 0;

  // Watchdog notes for another group of the same ranks; null if there is no watchdog.
  virtual std::unique_ptr<OperationNotes> notes([[maybe_unused]] std::string group) { return nullptr; }
  // True if a CUDA graph can hold its collectives on tensors of the device (core/cuda/cuda_graph.h).
  virtual bool can_be_captured() const { return false; }
  // Returns the limit on the time of one operation of this rank. If an operation takes longer, the job ends.
  // All groups of a job share one limit.
  virtual TimeLimit& time_limit() = 0;

 protected:
  friend class Pending;
  // Starts a checked operation and returns the ticket that wait() and is_done() take.
  virtual uint64_t start(const CommOperation& operation) = 0;
  virtual bool is_done(uint64_t ticket) = 0;
  virtual void wait(uint64_t ticket) = 0;

 private:
  Pending begin(const CommOperation& operation);

  std::string name_;
  int rank_, size_;
  Device reach_;
};

// A group of one rank. Every operation is done when its start returns. timeout_s: as in TimeLimit.
std::unique_ptr<Communicator> self_communicator(std::string name = "self",
                                                std::optional<double> timeout_s = {});

// A group for a plan: it has a rank and a size, but no other ranks exist. all_gather copies this rank's
// input to every rank's slice; all other collectives leave their outputs unchanged. split returns a group
// of the same rank and size.
class PlannedCommunicator : public Communicator {
 public:
  using Communicator::Communicator;
  std::unique_ptr<Communicator> split(int color, int key, std::string name) override;
  TimeLimit& time_limit() override { return time_limit_; }

 protected:
  uint64_t start(const CommOperation& operation) override;
  bool is_done(uint64_t) override { return true; }
  void wait(uint64_t) override {}

 private:
  TimeLimit time_limit_;
};
std::unique_ptr<Communicator> planned_communicator(std::string name, int rank, int size);

}  // namespace ingot
