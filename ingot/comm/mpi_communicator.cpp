// Empty in builds without MPI.
#ifdef INGOT_WITH_MPI
#include "ingot/comm/mpi_communicator.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <climits>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <thread>

#include "ingot/comm/rank_order.h"
#include "ingot/core/parallel.h"
#include "ingot/core/visible_text.h"

namespace ingot::mpi {
namespace {

using Clock = std::chrono::steady_clock;
using Kind = CommOperation::Kind;

constexpr size_t kQueue = 64;  // most collectives in progress at one time
constexpr uint64_t kMessageTicket = uint64_t{1} << 63;
constexpr int64_t kSmallBytes = 16 << 10;  // an all_reduce up to this size takes one all-gather

// An MPI type of the same element size.
MPI_Datatype carrier(DType dtype) {
  switch (size_bytes(dtype)) {
    case 1:
      return MPI_UINT8_T;
    case 2:
      return MPI_UINT16_T;
    case 4:
      return MPI_UINT32_T;
    default:
      return MPI_UINT64_T;
  }
}

int count_of(int64_t elements) {
  INGOT_CHECK(elements <= INT_MAX, "MPI: {} elements in one operation; at most {}", elements, INT_MAX);
  return static_cast<int>(elements);
}

// Signature describes the operation that a rank calls, so that ranks can compare their calls byte by byte.
struct Signature {
  char name[48] = {};
  int64_t kind = 0, bytes = 0;
};

struct Operation {
  CommOperation what;
  std::array<char, 48> name{};
};

// Shows another group's operations to the watchdog, on a board of their own.
class BoardNotes final : public OperationNotes {
 public:
  BoardNotes(JobContext& context, std::string group) : board_(context, std::move(group)) {}
  void begin(const char* kind, const std::string& name) override { board_.begin(kind, name); }
  void end() override { board_.end(); }

 private:
  Board board_;
};

struct Message {
  MPI_Request request = MPI_REQUEST_NULL;
  std::string text;
  Clock::time_point started;
  bool is_used = false;
};

class MpiCommunicator : public Communicator {
 public:
  MpiCommunicator(JobContext& context, MPI_Comm comm, std::string name, int rank, int size)
      : Communicator(std::move(name), rank, size),
        context_(context),
        comm_(comm),
        board_(context, this->name()),
        counts_(static_cast<size_t>(size)),
        offsets_(static_cast<size_t>(size)),
        own_counts_(static_cast<size_t>(size)),
        own_offsets_(static_cast<size_t>(size)),
        worker_([this] { work(); }) {
    MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN);
  }

  ~MpiCommunicator() override {
    {
      const std::lock_guard lock(mutex_);
      is_ending_ = true;
    }
    changed_.notify_all();
    worker_.join();
    MPI_Comm_free(&comm_);
  }

  std::unique_ptr<Communicator> split(int color, int key, std::string name) override {
    barrier("split");  // operations that were started before run first
    MPI_Comm group = MPI_COMM_NULL;
    check(MPI_Comm_split(comm_, color, key, &group), "MPI_Comm_split");
    return make_communicator(context_, group, std::move(name));
  }

  std::unique_ptr<OperationNotes> notes(std::string group) override {
    return std::make_unique<BoardNotes>(context_, std::move(group));
  }

  TimeLimit& time_limit() override { return context_.limit; }

 private:
  uint64_t start(const CommOperation& operation) override {
    if (operation.kind == Kind::kSend || operation.kind == Kind::kReceive) return start_message(operation);
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return started_ - completed_ < kQueue; });
    Operation& slot = queue_[started_ % kQueue];
    slot.what = operation;
    slot.what.name = {};  // the caller owns it; `name` below has a copy
    slot.name = {};
    std::copy_n(operation.name.data(), std::min(operation.name.size(), slot.name.size() - 1),
                slot.name.data());
    const uint64_t ticket = ++started_;
    if (CommLog* log = context_.options.log) log->started(this, ticket, name(), slot.name.data(), operation);
    lock.unlock();
    changed_.notify_all();
    return ticket;
  }

  bool is_done(uint64_t ticket) override {
    if (ticket & kMessageTicket) return test_message(ticket);
    const std::lock_guard lock(mutex_);
    return completed_ >= ticket;
  }

  void wait(uint64_t ticket) override {
    const Clock::time_point begin = Clock::now();
    if (ticket & kMessageTicket) {
      wait_for_message(ticket);
    } else {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return completed_ >= ticket; });
    }
    if (CommLog* log = context_.options.log) log->waited(this, ticket, begin);
  }

  // ---- messages: the caller's thread posts them at once ----

  uint64_t start_message(const CommOperation& o) {
    auto free = std::ranges::find_if(messages_, [](const Message& m) { return !m.is_used; });
    if (free == messages_.end()) free = messages_.emplace(free);
    const Tensor& t = o.out;
    const int count = count_of(t.elements());
    free->started = Clock::now();
    free->is_used = true;
    const bool is_send = o.kind == Kind::kSend;
    free->text =
        fmt::format("{} '{}' {} rank {}", kind_name(o.kind), o.name, is_send ? "to" : "from", o.peer);
    check(is_send ? MPI_Isend(t.data, count, carrier(t.dtype), o.peer, 0, comm_, &free->request)
                  : MPI_Irecv(t.data, count, carrier(t.dtype), o.peer, 0, comm_, &free->request),
          is_send ? "MPI_Isend" : "MPI_Irecv");
    const uint64_t ticket = kMessageTicket | static_cast<uint64_t>(free - messages_.begin());
    if (CommLog* log = context_.options.log) log->started(this, ticket, name(), free->text, o);
    return ticket;
  }

  bool test_message(uint64_t ticket) {
    Message& m = messages_[ticket & ~kMessageTicket];
    int is_complete = 0;
    check(MPI_Test(&m.request, &is_complete, MPI_STATUS_IGNORE), "MPI_Test");
    return is_complete && Clock::now() - m.started >= delay();
  }

  void wait_for_message(uint64_t ticket) {
    Message& m = messages_[ticket & ~kMessageTicket];
    board_.note_message(m.text);
    for (int i = 0; !test_message(ticket); ++i) pause(i);
    board_.note_message("");
    m.is_used = false;
  }

  // ---- collectives: a worker thread runs them one after the other ----

  void work() {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [&] { return is_ending_ || completed_ < started_; });
      if (completed_ == started_) return;
      const Operation operation = queue_[completed_ % kQueue];
      const uint64_t ticket = completed_ + 1;
      lock.unlock();
      CommLog* log = context_.options.log;
      if (log) log->begun(this, ticket);
      const Clock::time_point begin = Clock::now();
      try {
        run(operation);
      } catch (const std::exception& error) {
        abort_job(context_,
                  fmt::format("group {}: {} '{}': {}", name(), kind_name(operation.what.kind),
                              operation.name.data(), error.what()),
                  1);
      }
      std::this_thread::sleep_until(begin + delay());
      if (log) log->ended(this, ticket);
      lock.lock();
      ++completed_;
      changed_.notify_all();
    }
  }

  void run(const Operation& operation) {
    const CommOperation& o = operation.what;
    board_.begin(kind_name(o.kind), operation.name.data());
    if (context_.options.verifies) compare_signatures(operation);
    switch (o.kind) {
      case Kind::kAllReduce:
        all_reduce(o);
        break;
      case Kind::kAllGather:
        all_gather(o.out, o.in);
        break;
      case Kind::kReduceScatter:
        reduce_scatter(o);
        break;
      case Kind::kAllToAll:
        all_to_all(o.out, o.in);
        break;
      case Kind::kBroadcast:
        finish("MPI_Ibcast", [&](MPI_Request* r) {
          return MPI_Ibcast(o.out.data, count_of(o.out.elements()), carrier(o.out.dtype), o.peer, comm_, r);
        });
        break;
      default:
        finish("MPI_Ibarrier", [&](MPI_Request* r) { return MPI_Ibarrier(comm_, r); });
    }
    board_.end();
  }

  void all_reduce(const CommOperation& o) {
    const Tensor& t = o.out;
    const int64_t n = t.elements(), bytes = static_cast<int64_t>(size_bytes(t.dtype));
    if (n == 0 || size() == 1) return;
    if (n * bytes <= kSmallBytes) {
      std::byte* inputs = scratch(static_cast<int64_t>(size()) * n * bytes);
      finish("MPI_Iallgather", [&](MPI_Request* r) {
        return MPI_Iallgather(t.data, count_of(n), carrier(t.dtype), inputs, count_of(n), carrier(t.dtype),
                              comm_, r);
      });
      return reduce_in_rank_order(t.data, t.dtype, inputs, t.dtype, size(), n, o.op);
    }
    // Each rank reduces one slice and all-gathers it.
    const Range own = split_range(n, size(), rank());
    const int64_t own_n = own.end - own.begin;
    for (int p = 0; p < size(); ++p) {
      const Range slice = split_range(n, size(), p);
      const size_t i = static_cast<size_t>(p);
      counts_[i] = count_of(slice.end - slice.begin);
      offsets_[i] = count_of(slice.begin);
      own_counts_[i] = count_of(own_n);
      own_offsets_[i] = count_of(p * own_n);
    }
    std::byte* inputs = scratch(static_cast<int64_t>(size()) * own_n * bytes);
    MPI_Datatype type = carrier(t.dtype);
    finish("MPI_Ialltoallv", [&](MPI_Request* r) {
      return MPI_Ialltoallv(t.data, counts_.data(), offsets_.data(), type, inputs, own_counts_.data(),
                            own_offsets_.data(), type, comm_, r);
    });
    reduce_in_rank_order(static_cast<std::byte*>(t.data) + own.begin * bytes, t.dtype, inputs, t.dtype,
                         size(), own_n, o.op);
    finish("MPI_Iallgatherv", [&](MPI_Request* r) {
      return MPI_Iallgatherv(MPI_IN_PLACE, 0, type, t.data, counts_.data(), offsets_.data(), type, comm_, r);
    });
  }

  void all_gather(const Tensor& out, const Tensor& in) {
    std::byte* place = static_cast<std::byte*>(out.data) + static_cast<int64_t>(in.bytes()) * rank();
    if (place != in.data) std::memmove(place, in.data, in.bytes());
    const int n = count_of(in.elements());
    MPI_Datatype type = carrier(in.dtype);
    finish("MPI_Iallgather", [&](MPI_Request* r) {
      return MPI_Iallgather(MPI_IN_PLACE, 0, type, out.data, n, type, comm_, r);
    });
  }

  void reduce_scatter(const CommOperation& o) {
    const int64_t n = o.out.elements();
    std::byte* inputs = scratch(static_cast<int64_t>(o.in.bytes()));
    MPI_Datatype type = carrier(o.in.dtype);
    finish("MPI_Ialltoall", [&](MPI_Request* r) {
      return MPI_Ialltoall(o.in.data, count_of(n), type, inputs, count_of(n), type, comm_, r);
    });
    reduce_in_rank_order(o.out.data, o.out.dtype, inputs, o.in.dtype, size(), n, o.op);
  }

  void all_to_all(const Tensor& out, const Tensor& in) {
    const int n = count_of(in.elements() / size());
    MPI_Datatype type = carrier(in.dtype);
    finish("MPI_Ialltoall",
           [&](MPI_Request* r) { return MPI_Ialltoall(in.data, n, type, out.data, n, type, comm_, r); });
  }

  // Compares what the ranks call. Throws if it is not the same on all ranks.
  void compare_signatures(const Operation& operation) {
    Signature own;
    std::memcpy(own.name, operation.name.data(), sizeof own.name);
    own.kind = static_cast<int64_t>(operation.what.kind);
    own.bytes = static_cast<int64_t>(operation.what.in.bytes());
    std::vector<Signature> all(static_cast<size_t>(size()));
    finish("MPI_Iallgather", [&](MPI_Request* r) {
      return MPI_Iallgather(&own, sizeof own, MPI_BYTE, all.data(), sizeof own, MPI_BYTE, comm_, r);
    });
    for (size_t r = 0; r < all.size(); ++r)
      if (std::memcmp(&all[r], &all[0], sizeof own) != 0)
        fail(ErrorKind::kInternal,
             "rank 0 of the group calls {} '{}' of {} bytes, rank {} calls {} '{}' of {} bytes",
             kind_name(static_cast<Kind>(all[0].kind)), all[0].name, all[0].bytes, r,
             kind_name(static_cast<Kind>(all[r].kind)), all[r].name, all[r].bytes);
  }

  // Starts an MPI operation and polls until it is complete, leaving the core to computing threads meanwhile.
  template <typename Start>
  void finish(const char* call, Start&& start) {
    MPI_Request request = MPI_REQUEST_NULL;
    check(start(&request), call);
    int is_complete = 0;
    for (int i = 0; !is_complete; ++i) {
      if (i > 0) pause(i);
      check(MPI_Test(&request, &is_complete, MPI_STATUS_IGNORE), call);
    }
  }

  static void pause(int i) {
    if (i < 32)
      std::this_thread::yield();
    else
      std::this_thread::sleep_for(std::chrono::microseconds(std::min(i, 200)));
  }

  static void check(int code, const char* call) {
    if (code == MPI_SUCCESS) return;
    char text[MPI_MAX_ERROR_STRING];
    int length = 0;
    MPI_Error_string(code, text, &length);
    fail(ErrorKind::kInternal, "{}: {}", call, std::string(text, static_cast<size_t>(length)));
  }

  Clock::duration delay() const {
    return std::chrono::duration_cast<Clock::duration>(
        std::chrono::duration<double>(context_.options.message_delay_s));
  }

  // A buffer that grows to the largest operation.
  std::byte* scratch(int64_t bytes) {
    if (static_cast<int64_t>(scratch_.size()) < bytes) scratch_.resize(static_cast<size_t>(bytes));
    return scratch_.data();
  }

  JobContext& context_;
  MPI_Comm comm_;
  Board board_;
  std::vector<int> counts_, offsets_, own_counts_, own_offsets_;
  std::vector<std::byte> scratch_;
  std::deque<Message> messages_;  // its size is the largest number in progress at one time so far

  std::mutex mutex_;
  std::condition_variable changed_;
  std::array<Operation, kQueue> queue_;
  uint64_t started_ = 0, completed_ = 0;
  bool is_ending_ = false;
  std::thread worker_;  // last, because it uses the other members
};

}  // namespace

std::unique_ptr<Communicator> make_communicator(JobContext& context, MPI_Comm comm, std::string name) {
  int rank = 0, size = 1;
  MPI_Comm_rank(comm, &rank);
  MPI_Comm_size(comm, &size);
  return std::make_unique<MpiCommunicator>(context, comm, std::move(name), rank, size);
}

void abort_job(JobContext& context, const std::string& cause, int exit_code) {
  fmt::print(stderr, "ingot: rank {} of {}: {}\n", context.rank, context.size, visible_text(cause));
  std::fflush(stderr);
  MPI_Abort(MPI_COMM_WORLD, exit_code);
  std::_Exit(exit_code);
}

}  // namespace ingot::mpi
#endif
