// Ranks, and what the ranks of a group tell each other: collectives and messages on Tensors.
//
// All ranks of a group start the same collectives in the same order, with equal sizes. A collective is
// started, runs beside the caller's work and is waited for; the plain forms do both. Between start and the
// end of wait its tensors belong to the communicator. Collectives of one group run in the order in which they
// were started; send and receive are independent of them and of each other, but messages between two ranks
// keep their order.
//
// Sums are taken in order of the ranks, of 16-bit floats in f32 and rounded once: every rank gets the same
// bits, and the bits do not depend on the transport.
//
// Tensors lie on the host; or, where a group is made for a device (comm/device_group.h), on that device too.
// Such an operation reads what was given to the device's stream before it was started, and what is given to
// it after wait() sees the result.
//
// The name of an operation (at most 47 bytes are kept) is what traces and the watchdog call it. A transport
// that fails, or a rank that does not come within the time limit, ends the job on all ranks. One thread at a
// time starts and waits.
#pragma once

#include <cstdint>
#include <memory>
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
  Tensor out, in;  // what is written, what is read; of all_reduce and broadcast the same
  ReduceOp op = ReduceOp::kSum;
  int peer = 0;  // root of a broadcast, the other end of a message
};

const char* kind_name(CommOperation::Kind kind);  // "all_reduce"

class Communicator;

// An operation under way. It must be waited for before it is forgotten.
class [[nodiscard]] Pending {
 public:
  Pending() = default;  // of nothing: done
  Pending(Communicator& comm, uint64_t ticket) : comm_(&comm), ticket_(ticket) {}
  bool is_done() const;
  void wait();

 private:
  Communicator* comm_ = nullptr;
  uint64_t ticket_ = 0;
};

// What a watchdog is told of the operations of a group that run on a device, one after the other. Any thread.
class OperationNotes {
 public:
  virtual ~OperationNotes() = default;
  virtual void begin(const char* kind, const std::string& name) = 0;
  virtual void end() = 0;
};

class Communicator {
 public:
  // reach: the device, beside the host, whose tensors can be operands.
  Communicator(std::string name, int rank, int size, Device reach = Device::kCpu)
      : name_(std::move(name)), rank_(rank), size_(size), reach_(reach) {}
  virtual ~Communicator() = default;
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  const std::string& name() const { return name_; }  // of the group, "dp"
  int rank() const { return rank_; }                 // within the group
  int size() const { return size_; }

  // t = op over the ranks' t. f32, bf16, f16, i32 or i64.
  Pending start_all_reduce(std::string_view name, const Tensor& t, ReduceOp op = ReduceOp::kSum);
  // out (size * n) = the ranks' in (n), in order of the ranks. Any dtype. in may lie at its place in out.
  Pending start_all_gather_into(std::string_view name, const Tensor& out, const Tensor& in);
  // out (n) = op over the ranks' in (size * n), part `rank`. f32, bf16, f16, i32 or i64; out of a bf16 in may
  // be f32, and is then not rounded. out may lie at its place in in.
  Pending start_reduce_scatter(std::string_view name, const Tensor& out, const Tensor& in,
                               ReduceOp op = ReduceOp::kSum);
  // Part r of out (size * n) = part `rank` of rank r's in (size * n). Any dtype. out is not in.
  Pending start_all_to_all(std::string_view name, const Tensor& out, const Tensor& in);
  // t = the root's t. Any dtype.
  Pending start_broadcast(std::string_view name, const Tensor& t, int root);
  // Any dtype; the receiver's t has the sender's size.
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

  // The group of the ranks that give the same color, in order of (key, rank). Called by all ranks of this
  // one.
  virtual std::unique_ptr<Communicator> split(int color, int key, std::string name) = 0;

  // Notes for another group of the same ranks; null where nobody watches.
  virtual std::unique_ptr<OperationNotes> notes([[maybe_unused]] std::string group) { return nullptr; }
  // How long an operation of this rank may take before the job ends; null where no operation is watched.
  virtual TimeLimit* time_limit() { return nullptr; }

 protected:
  friend class Pending;
  // The operation is checked. The ticket is what wait and is_done are asked about.
  virtual uint64_t start(const CommOperation& operation) = 0;
  virtual bool is_done(uint64_t ticket) = 0;
  virtual void wait(uint64_t ticket) = 0;

 private:
  Pending begin(const CommOperation& operation);

  std::string name_;
  int rank_, size_;
  Device reach_;
};

// A group of one: everything is done when it is started.
std::unique_ptr<Communicator> self_communicator(std::string name = "self");

// A group of `size` ranks as a plan of memory needs it: it has a rank and a size, and no other rank is there.
// Gathering finds this rank's numbers in every rank's place; other collectives leave what they were given.
// split gives a group of the same size.
std::unique_ptr<Communicator> planned_communicator(std::string name, int rank, int size);

}  // namespace ingot
