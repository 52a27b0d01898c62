// A group over NCCL. Its collectives run on a stream of their own, in the order in which they were started. A
// watcher thread tells the watchdog which one is running and aborts the group when NCCL reports an error.
// all_to_all and messages go through the host, where the order of messages does not matter.
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
#include <mutex>
#include <thread>
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

class NcclGroup final : public Communicator {
 public:
  NcclGroup(const Library& library, Communicator& host, Stream& stream)
      : Communicator(host.name(), host.rank(), host.size(), Device::kCuda),
        library_(library),
        host_(host),
        staged_(staged_group(host, stream)),
        stream_(stream),
        queue_(make_stream(Device::kCuda)),
        notes_(host.notes(host.name() + " on the device")) {
    INGOT_CUDA_CHECK(cudaGetDevice(&device_));
    ncclUniqueId id{};
    if (rank() == 0) settle(library_.unique_id(&id), "ncclGetUniqueId");
    host_.broadcast("nccl id", Tensor(&id, DType::u8, {sizeof id}), 0);
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    settle(library_.init(&comm_, size(), id, rank(), &config), "ncclCommInitRankConfig");
    watcher_ = std::thread([this] { watch(); });
  }

  ~NcclGroup() override {
    is_ending_ = true;
    watcher_.join();
    for (const Running& running : running_) cudaEventDestroy(running.end);
    for (cudaEvent_t event : free_) cudaEventDestroy(event);
    if (!comm_ || has_failed_) return;
    ncclResult_t result = library_.finalize(comm_);
    while (result == ncclInProgress && library_.async_error(comm_, &result) == ncclSuccess)
      std::this_thread::yield();
    library_.destroy(comm_);
  }

  std::unique_ptr<Communicator> split(int, int, std::string) override {
    fail(ErrorKind::kInternal, "NCCL: split the host's group {} and make an NCCL group of the result",
         name());
  }
  std::unique_ptr<OperationNotes> notes(std::string group) override { return host_.notes(std::move(group)); }
  TimeLimit& time_limit() override { return host_.time_limit(); }

 private:
  uint64_t start(const CommOperation& o) override {
    const bool is_ours = o.kind == Kind::kAllReduce || o.kind == Kind::kAllGather ||
                         o.kind == Kind::kReduceScatter || o.kind == Kind::kBroadcast;
    if (o.in.device == Device::kCpu || !is_ours) {
      on_host_.push_back({next_on_host_, relay(*staged_, o)});
      return kOnHost | next_on_host_++;
    }
    throw_if_failed();
    ready_.record(stream_);
    ready_.make_wait(queue_);
    settle(enqueue(o), kind_name(o.kind));
    const std::lock_guard lock(mutex_);
    INGOT_CHECK(running_.size() < kMaxUnderWay, "NCCL: group {}: {} collectives under way", name(),
                running_.size());
    Running running{kind_name(o.kind), std::string(o.name), ++started_, free_event()};
    INGOT_CUDA_CHECK(cudaEventRecord(running.end, cuda::queue_of(queue_)));
    running_.push_back(std::move(running));
    return started_;
  }

  ncclResult_t enqueue(const CommOperation& o) {
    const auto type = static_cast<ncclDataType_t>(dtype_code(o.in.dtype));
    const auto op = static_cast<ncclRedOp_t>(op_code(o.op));
    const auto count = static_cast<size_t>(o.in.elements());
    cudaStream_t queue = cuda::queue_of(queue_);
    switch (o.kind) {
      case Kind::kAllReduce:
        return library_.all_reduce(o.in.data, o.out.data, count, type, op, comm_, queue);
      case Kind::kAllGather:
        return library_.all_gather(o.in.data, o.out.data, count, type, comm_, queue);
      case Kind::kReduceScatter:
        INGOT_CHECK(o.in.dtype == o.out.dtype, "NCCL: reduce_scatter {}: from {} into {}", o.name,
                    ingot::name(o.in.dtype), ingot::name(o.out.dtype));
        return library_.reduce_scatter(o.in.data, o.out.data, count / static_cast<size_t>(size()), type, op,
                                       comm_, queue);
      default:
        return library_.broadcast(o.in.data, o.out.data, count, type, o.peer, comm_, queue);
    }
  }

  bool is_done(uint64_t ticket) override {
    if (ticket & kOnHost) return on_host(ticket)->pending.is_done();
    const std::lock_guard lock(mutex_);
    return running_.empty() || running_.front().number > ticket;
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
    for (const Running& running : running_)
      if (running.number == ticket)
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

  // Blocks until a call that NCCL may continue in the background has finished. Throws if it failed.
  void settle(ncclResult_t result, const char* call) {
    while (result == ncclInProgress) {
      std::this_thread::yield();
      if (library_.async_error(comm_, &result) != ncclSuccess) break;
    }
    if (result != ncclSuccess)
      fail(ErrorKind::kInternal, "NCCL: group {}: {}: {}", name(), call, library_.words(result, comm_));
  }

  void throw_if_failed() {
    if (!has_failed_) return;
    const std::lock_guard lock(mutex_);
    fail(ErrorKind::kInternal, "{}", failure_);
  }

  // ---- the watcher thread ----

  void watch() {
    cudaSetDevice(device_);
    while (!is_ending_ && !has_failed_) {
      advance();
      find_error();
      std::this_thread::sleep_for(kPeriod);
    }
  }

  void advance() {
    const std::lock_guard lock(mutex_);
    while (!running_.empty() && cudaEventQuery(running_.front().end) == cudaSuccess) {
      free_.push_back(running_.front().end);
      running_.pop_front();
      if (notes_ && noted_ > 0) notes_->end();
      noted_ = 0;
    }
    if (!notes_ || running_.empty() || noted_ == running_.front().number) return;
    noted_ = running_.front().number;
    notes_->begin(running_.front().kind, running_.front().name);
  }

  // After an error, abort ends the kernels that wait for a lost rank, so that the host does not wait for
  // ever and can report the error.
  void find_error() {
    ncclResult_t result = ncclSuccess;
    library_.async_error(comm_, &result);
    if (result == ncclSuccess || result == ncclInProgress) return;
    {
      const std::lock_guard lock(mutex_);
      const bool is_running = !running_.empty();
      failure_ = failure_text(name(), is_running ? running_.front().kind : "nothing",
                              is_running ? running_.front().name : "",
                              is_running ? running_.front().number : 0, library_.words(result, comm_));
    }
    has_failed_ = true;
    library_.abort(comm_);
  }

  Library library_;
  Communicator& host_;
  std::unique_ptr<Communicator> staged_;
  Stream& stream_;
  Stream queue_;
  cuda::Event ready_;
  int device_ = 0;
  ncclComm_t comm_ = nullptr;
  std::deque<OnHost> on_host_;
  uint64_t next_on_host_ = 0;

  std::mutex mutex_;  // guards the members below
  std::deque<Running> running_;
  std::vector<cudaEvent_t> free_;
  uint64_t started_ = 0, noted_ = 0;  // numbers of the newest collective and of the one in notes_
  std::unique_ptr<OperationNotes> notes_;
  std::string failure_;
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
