// A group over NCCL. It has two lanes, each a communicator of NCCL with a stream of high priority: reductions run in one,
// everything else in the other, so that gathering weights never queues behind the reduction of gradients. The
// collectives of a lane run in the order in which they were started. A watcher thread tells the watchdog which ones are
// running and aborts the group when NCCL reports an error. Messages between two ranks go through the host, where their
// order relative to other messages does not matter.
#include <cuda_runtime.h>
#include <dlfcn.h>
#include <nccl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <deque>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "ingot/comm/device_group.h"
#include "ingot/comm/nccl_group.h"
#include "ingot/core/cuda/cuda_device.h"
#include "ingot/core/cuda/cuda_launch.h"

namespace ingot::nccl {
namespace {

using Kind = CommOperation::Kind;

constexpr auto kPeriod = std::chrono::milliseconds(5);
constexpr uint64_t kOnHost = uint64_t{1} << 63;  // marks the tickets of operations that go through the host
constexpr size_t kMaxUnderWay = 1024;

static_assert(ncclInt8 == 0 && ncclUint8 == 1 && ncclInt32 == 2 && ncclUint32 == 3 && ncclInt64 == 4 &&
              ncclFloat16 == 6 && ncclFloat32 == 7 && ncclFloat64 == 8 && ncclBfloat16 == 9);
static_assert(ncclSum == 0 && ncclMax == 2 && ncclMin == 3);

// The library's functions that Ingot calls.
struct Library {
  decltype(&ncclGetVersion) version = nullptr;
  decltype(&ncclGetUniqueId) unique_id = nullptr;
  decltype(&ncclCommInitRankConfig) init = nullptr;
  decltype(&ncclCommFinalize) finalize = nullptr;
  decltype(&ncclCommDestroy) destroy = nullptr;
  decltype(&ncclCommAbort) abort = nullptr;
  decltype(&ncclCommGetAsyncError) async_error = nullptr;
  decltype(&ncclGetErrorString) text = nullptr;
  decltype(&ncclGetLastError) last_error = nullptr;
  decltype(&ncclAllReduce) all_reduce = nullptr;
  decltype(&ncclAllGather) all_gather = nullptr;
  decltype(&ncclReduceScatter) reduce_scatter = nullptr;
  decltype(&ncclBroadcast) broadcast = nullptr;
  decltype(&ncclSend) send = nullptr;
  decltype(&ncclRecv) receive = nullptr;
  decltype(&ncclGroupStart) group_start = nullptr;
  decltype(&ncclGroupEnd) group_end = nullptr;
  decltype(&ncclCommSplit) split = nullptr;

  // Returns the library's version, or 0 if it cannot be used. It is never unloaded, because its threads
  // outlive its communicators.
  int64_t load() {
    void* handle = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
    if (!handle) return 0;
    bool has_all = true;
    const auto find = [&](auto& function, const char* name) {
      function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(handle, name));
      has_all = has_all && function;
    };
    find(version, "ncclGetVersion");
    find(unique_id, "ncclGetUniqueId");
    find(init, "ncclCommInitRankConfig");
    find(finalize, "ncclCommFinalize");
    find(destroy, "ncclCommDestroy");
    find(abort, "ncclCommAbort");
    find(async_error, "ncclCommGetAsyncError");
    find(text, "ncclGetErrorString");
    find(last_error, "ncclGetLastError");
    find(all_reduce, "ncclAllReduce");
    find(all_gather, "ncclAllGather");
    find(reduce_scatter, "ncclReduceScatter");
    find(broadcast, "ncclBroadcast");
    find(send, "ncclSend");
    find(receive, "ncclRecv");
    find(group_start, "ncclGroupStart");
    find(group_end, "ncclGroupEnd");
    find(split, "ncclCommSplit");
    int number = 0;
    return has_all && version(&number) == ncclSuccess ? number : 0;
  }

  std::string words(ncclResult_t result, ncclComm_t comm) const {
    return fmt::format("{} ({})", text(result), last_error(comm));
  }
};

// A collective that was submitted to the device.
struct Running {
  const char* kind;
  std::string name;
  uint64_t number;
  cudaEvent_t end;
};

// A communicator of NCCL, its stream, and the collectives that run there. The group's own thread starts and waits for
// them; advance() may be called by the watcher too.
struct Lane {
  const char* name = "";
  ncclComm_t comm = nullptr;  // guarded by comms_mutex_; null once it is aborted or destroyed
  Stream queue = cuda::make_priority_stream();
  // Guarded by mutex_.
  std::deque<Running> running = {};
  uint64_t started = 0, noted = 0;  // numbers of the newest collective and of the one in notes
  std::unique_ptr<OperationNotes> notes = nullptr;
};

class NcclGroup final : public Communicator {
 public:
  NcclGroup(const Library& library, Communicator& host, Stream& stream)
      : Communicator(host.name(), host.rank(), host.size(), Device::kCuda),
        library_(library),
        host_(host),
        staged_(staged_group(host, stream)),
        stream_(stream) {
    INGOT_CUDA_CHECK(cudaGetDevice(&device_));
    lanes_[kReductions].name = "reductions";
    lanes_[kOthers].name = "gathers";
    for (Lane& lane : lanes_)
      lane.notes = host.notes(fmt::format("{} on the device, {}", host.name(), lane.name));
    try {
      connect();
    } catch (...) {
      abort_all();
      throw;
    }
    watcher_ = std::thread([this] { watch(); });
  }

  ~NcclGroup() override {
    is_ending_ = true;
    watcher_.join();
    // While an exception passes, other ranks may wait for collectives that this one will never start.
    if (std::uncaught_exceptions() > exceptions_at_start_ || has_failed_ || !finalize_all()) abort_all();
    for (Lane& lane : lanes_)
      for (const Running& running : lane.running) cudaEventDestroy(running.end);
    for (cudaEvent_t event : free_) cudaEventDestroy(event);
  }

  std::unique_ptr<Communicator> split(int color, int key, std::string name) override {
    std::unique_ptr<Communicator> part = host_.split(color, key, std::move(name));
    if (part->size() == 1) return staged_group(std::move(part), stream_);
    auto group = std::make_unique<NcclGroup>(library_, *part, stream_);
    group->owned_ = std::move(part);
    return group;
  }
  std::unique_ptr<OperationNotes> notes(std::string group) override { return host_.notes(std::move(group)); }
  TimeLimit& time_limit() override { return host_.time_limit(); }

 private:
  enum LaneIndex : size_t { kReductions, kOthers, kLanes };

  void connect() {
    ncclUniqueId id{};
    if (rank() == 0) settle(nullptr, library_.unique_id(&id), "ncclGetUniqueId");
    host_.broadcast("nccl id", Tensor(&id, DType::u8, {sizeof id}), 0);
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    Lane &first = lanes_[kReductions], &second = lanes_[kOthers];
    settle(&first, library_.init(&first.comm, size(), id, rank(), &config), "ncclCommInitRankConfig");
    settle(&first, library_.split(first.comm, 0, rank(), &second.comm, &config), "ncclCommSplit");
    settle(&second, ncclInProgress, "ncclCommSplit");
  }

  static Lane& lane_of(std::array<Lane, kLanes>& lanes, Kind kind) {
    return lanes[kind == Kind::kAllReduce || kind == Kind::kReduceScatter ? kReductions : kOthers];
  }

  uint64_t start(const CommOperation& o) override {
    const bool is_ours = o.kind != Kind::kBarrier && o.kind != Kind::kSend && o.kind != Kind::kReceive;
    if (o.in.device == Device::kCpu || !is_ours) {
      on_host_.push_back({next_on_host_, relay(*staged_, o)});
      return kOnHost | next_on_host_++;
    }
    throw_if_failed();
    Lane& lane = lane_of(lanes_, o.kind);
    make_room(lane);
    ready_.record(stream_);
    ready_.make_wait(lane.queue);
    settle(&lane, enqueue(lane, o), kind_name(o.kind));
    const std::lock_guard lock(mutex_);
    Running running{kind_name(o.kind), std::string(o.name), ++lane.started, free_event()};
    INGOT_CUDA_CHECK(cudaEventRecord(running.end, cuda::queue_of(lane.queue)));
    lane.running.push_back(std::move(running));
    return lane.started * kLanes + static_cast<uint64_t>(&lane - lanes_.data());
  }

  // Blocks while kMaxUnderWay collectives are under way, as when the host is steps ahead of the device.
  void make_room(Lane& lane) {
    while (true) {
      cudaEvent_t oldest = nullptr;
      {
        const std::lock_guard lock(mutex_);
        if (lane.running.size() < kMaxUnderWay) return;
        oldest = lane.running.front().end;
      }
      INGOT_CUDA_CHECK(cudaEventSynchronize(oldest));
      throw_if_failed();
      advance(lane);
    }
  }

  ncclResult_t enqueue(Lane& lane, const CommOperation& o) {
    const auto type = static_cast<ncclDataType_t>(dtype_code(o.in.dtype));
    const auto op = static_cast<ncclRedOp_t>(op_code(o.op));
    const auto count = static_cast<size_t>(o.in.elements());
    cudaStream_t queue = cuda::queue_of(lane.queue);
    const std::lock_guard lock(comms_mutex_);
    if (!lane.comm) return ncclInvalidUsage;  // aborted a moment ago; settle() says why
    switch (o.kind) {
      case Kind::kAllReduce:
        return library_.all_reduce(o.in.data, o.out.data, count, type, op, lane.comm, queue);
      case Kind::kAllGather:
        return library_.all_gather(o.in.data, o.out.data, count, type, lane.comm, queue);
      case Kind::kReduceScatter:
        INGOT_CHECK(o.in.dtype == o.out.dtype, "NCCL: reduce_scatter {}: from {} into {}", o.name,
                    ingot::name(o.in.dtype), ingot::name(o.out.dtype));
        return library_.reduce_scatter(o.in.data, o.out.data, count / static_cast<size_t>(size()), type, op,
                                       lane.comm, queue);
      case Kind::kAllToAll:
        return all_to_all(lane, o, count / static_cast<size_t>(size()), type);
      default:
        return library_.broadcast(o.in.data, o.out.data, count, type, o.peer, lane.comm, queue);
    }
  }

  // NCCL has no all_to_all: a group of messages, which proceed together, makes one.
  ncclResult_t all_to_all(Lane& lane, const CommOperation& o, size_t count, ncclDataType_t type) {
    cudaStream_t queue = cuda::queue_of(lane.queue);
    const size_t bytes = count * size_bytes(o.in.dtype);
    ncclResult_t result = library_.group_start();
    for (int peer = 0; result == ncclSuccess && peer < size(); ++peer) {
      const size_t at = static_cast<size_t>(peer) * bytes;
      result =
          library_.send(static_cast<const std::byte*>(o.in.data) + at, count, type, peer, lane.comm, queue);
      if (result == ncclSuccess)
        result =
            library_.receive(static_cast<std::byte*>(o.out.data) + at, count, type, peer, lane.comm, queue);
    }
    const ncclResult_t end = library_.group_end();
    return result == ncclSuccess ? end : result;
  }

  bool is_done(uint64_t ticket) override {
    if (ticket & kOnHost) return on_host(ticket)->pending.is_done();
    const std::lock_guard lock(mutex_);
    const Lane& lane = lanes_[ticket % kLanes];
    return lane.running.empty() || lane.running.front().number > ticket / kLanes;
  }

  // The device's stream waits; the host does not.
  void wait(uint64_t ticket) override {
    if (ticket & kOnHost) {
      const auto message = on_host(ticket);
      message->pending.wait();
      on_host_.erase(message);
      return;
    }
    throw_if_failed();
    const std::lock_guard lock(mutex_);
    for (const Running& running : lanes_[ticket % kLanes].running)
      if (running.number == ticket / kLanes)
        INGOT_CUDA_CHECK(cudaStreamWaitEvent(cuda::queue_of(stream_), running.end, 0));
  }

  struct OnHost {
    uint64_t number;
    Pending pending;
  };
  std::deque<OnHost>::iterator on_host(uint64_t ticket) {
    return std::ranges::find(on_host_, ticket & ~kOnHost, &OnHost::number);
  }

  cudaEvent_t free_event() {
    cudaEvent_t event = nullptr;
    if (free_.empty()) {
      INGOT_CUDA_CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
      return event;
    }
    event = free_.back();
    free_.pop_back();
    return event;
  }

  // Returns the state of a lane's communicator; an error if it was aborted.
  ncclResult_t state_of(const Lane& lane) {
    const std::lock_guard lock(comms_mutex_);
    ncclResult_t result = ncclSuccess;
    if (!lane.comm) return ncclInvalidUsage;
    return library_.async_error(lane.comm, &result) == ncclSuccess ? result : ncclInternalError;
  }

  // Blocks until a call that NCCL may continue in the background has finished. Throws if it failed, or if the watcher
  // has found an error meanwhile.
  void settle(const Lane* lane, ncclResult_t result, const char* call) {
    while (result == ncclInProgress && lane) {
      throw_if_failed();
      std::this_thread::yield();
      result = state_of(*lane);
    }
    throw_if_failed();
    if (result != ncclSuccess)
      fail(ErrorKind::kInternal, "NCCL: group {}: {}: {}", name(), call,
           library_.words(result, lane ? lane->comm : nullptr));
  }

  void throw_if_failed() {
    if (!has_failed_) return;
    const std::lock_guard lock(mutex_);
    fail(ErrorKind::kInternal, "{}", failure_);
  }

  // Ends all communicators in order. Returns false if one is not done within kFinalizeTime.
  bool finalize_all() {
    for (size_t i = kLanes; i-- > 0;) {
      Lane& lane = lanes_[i];
      if (!lane.comm) continue;
      const auto give_up = std::chrono::steady_clock::now() + kFinalizeTime;
      ncclResult_t result = library_.finalize(lane.comm);
      while (result == ncclInProgress && std::chrono::steady_clock::now() < give_up) {
        std::this_thread::sleep_for(std::chrono::microseconds(100));
        if (library_.async_error(lane.comm, &result) != ncclSuccess) return false;
      }
      if (result != ncclSuccess) return false;
      library_.destroy(std::exchange(lane.comm, nullptr));
    }
    return true;
  }

  // Ends the kernels that wait for other ranks, and frees the communicators.
  void abort_all() {
    const std::lock_guard lock(comms_mutex_);
    for (Lane& lane : lanes_)
      if (lane.comm) library_.abort(std::exchange(lane.comm, nullptr));
  }

  // ---- the watcher thread ----

  void watch() {
    cudaSetDevice(device_);
    while (!is_ending_ && !has_failed_) {
      for (Lane& lane : lanes_) {
        advance(lane);
        find_error(lane);
      }
      std::this_thread::sleep_for(kPeriod);
    }
  }

  void advance(Lane& lane) {
    const std::lock_guard lock(mutex_);
    while (!lane.running.empty() && cudaEventQuery(lane.running.front().end) == cudaSuccess) {
      free_.push_back(lane.running.front().end);
      lane.running.pop_front();
      if (lane.notes && lane.noted > 0) lane.notes->end();
      lane.noted = 0;
    }
    if (!lane.notes || lane.running.empty() || lane.noted == lane.running.front().number) return;
    lane.noted = lane.running.front().number;
    lane.notes->begin(lane.running.front().kind, lane.running.front().name);
  }

  // After an error, abort ends the kernels that wait for a lost rank, so that the host does not wait for
  // ever and can report the error.
  void find_error(Lane& lane) {
    const ncclResult_t result = state_of(lane);
    if (result == ncclSuccess || result == ncclInProgress || has_failed_) return;
    {
      const std::lock_guard lock(mutex_);
      const bool is_running = !lane.running.empty();
      failure_ =
          failure_text(name(), is_running ? lane.running.front().kind : "nothing",
                       is_running ? lane.running.front().name : "",
                       is_running ? lane.running.front().number : 0, library_.words(result, lane.comm));
    }
    has_failed_ = true;
    abort_all();
  }

  static constexpr auto kFinalizeTime = std::chrono::seconds(10);

  Library library_;
  std::unique_ptr<Communicator> owned_ = nullptr;  // host_, if split() made it
  Communicator& host_;
  std::unique_ptr<Communicator> staged_;
  Stream& stream_;
  cuda::Event ready_;
  int device_ = 0, exceptions_at_start_ = std::uncaught_exceptions();
  std::deque<OnHost> on_host_;
  uint64_t next_on_host_ = 0;

  // A thread that holds both takes comms_mutex_ last.
  std::mutex mutex_, comms_mutex_;
  std::array<Lane, kLanes> lanes_;
  std::vector<cudaEvent_t> free_;  // guarded by mutex_
  std::string failure_;            // guarded by mutex_
  std::atomic<bool> has_failed_ = false, is_ending_ = false;
  std::thread watcher_;  // last, because it uses the other members
};

RankDevice own_device(int64_t version) {
  RankDevice own;
  own.version = version;
  gethostname(own.node, sizeof own.node - 1);
  int device = 0;
  INGOT_CUDA_CHECK(cudaGetDevice(&device));
  INGOT_CUDA_CHECK(cudaDeviceGetPCIBusId(own.bus, sizeof own.bus, device));
  return own;
}

}  // namespace

std::unique_ptr<Communicator> make_group(Communicator& host, Stream& stream) {
  if (host.size() == 1) return nullptr;
  Library library;
  const RankDevice own = own_device(library.load());
  std::vector<RankDevice> all(static_cast<size_t>(host.size()));
  const auto bytes = static_cast<int64_t>(sizeof own);
  host.all_gather_into("devices", Tensor(all.data(), DType::u8, {host.size() * bytes}),
                       Tensor(const_cast<RankDevice*>(&own), DType::u8, {bytes}));
  if (!have_own_devices(all)) return nullptr;
  return std::make_unique<NcclGroup>(library, host, stream);
}

}  // namespace ingot::nccl
