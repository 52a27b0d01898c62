// A group over NCCL. For collectives it has two lanes, each a communicator of NCCL with a stream of high
// priority: reductions run in one, everything else in the other, so that gathering weights never queues
// behind the reduction of gradients. The collectives of a lane run in the order in which they were started. A
// watcher thread tells the watchdog which ones are running and aborts the group when NCCL reports an error. A
// link for messages from one rank to another has one lane, so that messages of different links, which may
// wait for each other, do not queue behind each other.
//
// While the group's stream is captured into a CUDA graph, a collective becomes a part of the graph: the
// stream of its lane joins the capture, and wait() leads back. An event that was recorded in a capture cannot
// be asked whether it is done, so the watchdog hears of the collectives of a lane in a graph together,
// whenever the graph is launched. NCCL itself keeps the order between the collectives of graphs and others of
// a communicator.
#include <cuda_runtime.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <deque>
#include <exception>
#include <mutex>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "ingot/comm/device_group.h"
#include "ingot/comm/nccl_group.h"
#include "ingot/comm/nccl_lane.h"
#include "ingot/comm/nccl_library.h"
#include "ingot/core/copy.h"
#include "ingot/core/cuda/cuda_device.h"
#include "ingot/core/cuda/cuda_launch.h"

namespace ingot::nccl {
namespace {

using Kind = CommOperation::Kind;

constexpr auto kPeriod = std::chrono::milliseconds(5);
constexpr uint64_t kOnHost = uint64_t{1} << 63;   // marks the tickets of operations that go through the host
constexpr uint64_t kInGraph = uint64_t{1} << 62;  // marks those of collectives in a graph that is captured
constexpr size_t kMaxUnderWay = 1024;

// Use names the operations that a group runs on the device; the others go through the host.
enum class Use { kCollectives, kMessages };

class NcclGroup final : public Communicator {
 public:
  NcclGroup(const Library& library, Communicator& host, Stream& stream, Use use)
      : Communicator(host.name(), host.rank(), host.size(), Device::kCuda),
        library_(library),
        host_(host),
        staged_(staged_group(host, stream)),
        stream_(stream),
        lanes_(use == Use::kCollectives ? kLanes : 1) {
    INGOT_CUDA_CHECK(cudaGetDevice(&device_));
    lanes_.front().name = use == Use::kCollectives ? "reductions" : "messages";
    if (use == Use::kCollectives) lanes_.back().name = "gathers";
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

  NcclGroup(const Library& library, std::unique_ptr<Communicator> host, Stream& stream, Use use)
      : NcclGroup(library, *host, stream, use) {
    owned_ = std::move(host);
  }

  ~NcclGroup() override {
    end_watch();
    // While an exception passes, other ranks may wait for collectives that this one will never start.
    if (std::uncaught_exceptions() > exceptions_at_start_ || has_failed_ || finalize_all() != ncclSuccess)
      abort_all();
    for (Lane& lane : lanes_)
      for (const Running& running : lane.running) cudaEventDestroy(running.end);
    for (cudaEvent_t event : free_) cudaEventDestroy(event);
    for (cudaEvent_t event : ends_in_graph_) cudaEventDestroy(event);
  }

  std::unique_ptr<Communicator> split(int color, int key, std::string name) override {
    std::unique_ptr<Communicator> part = host_.split(color, key, std::move(name));
    if (part->size() == 1) return staged_group(std::move(part), stream_);
    return std::make_unique<NcclGroup>(library_, std::move(part), stream_, Use::kCollectives);
  }
  std::unique_ptr<OperationNotes> notes(std::string group) override { return host_.notes(std::move(group)); }
  bool can_be_captured() const override { return true; }
  TimeLimit& time_limit() override { return host_.time_limit(); }

  void finalize() {
    end_watch();
    throw_if_failed();
    if (const ncclResult_t result = finalize_all(); result != ncclSuccess)
      fail(ErrorKind::kInternal, "NCCL: group {}: ncclCommFinalize: {}", name(),
           library_.words(result, nullptr));
  }

 private:
  static constexpr size_t kLanes = 2;  // a group for collectives has two

  void connect() {
    ncclUniqueId id{};
    if (rank() == 0) settle(nullptr, library_.unique_id(&id), "ncclGetUniqueId");
    host_.broadcast("nccl id", Tensor(&id, DType::u8, {sizeof id}), 0);
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    config.maxCTAs = lanes_.size() == 1 ? kLinkCtas : kCollectiveCtas;
    Lane &first = lanes_.front(), &second = lanes_.back();
    settle(&first, library_.init(&first.comm, size(), id, rank(), &config), "ncclCommInitRankConfig");
    if (lanes_.size() == 1) return;
    // ncclCommSplit returns ncclSuccess while a thread of NCCL still makes the new communicator. Until that
    // thread has stored it, the state of the first communicator is ncclInProgress.
    const ncclResult_t begun = library_.split(first.comm, 0, rank(), &second.comm, &config);
    settle(&first, begun == ncclSuccess ? ncclInProgress : begun, "ncclCommSplit");
    INGOT_CHECK(second.comm, "NCCL: group {}: ncclCommSplit has ended without a communicator", name());
    settle(&second, ncclInProgress, "ncclCommSplit");
  }

  Lane& lane_of(Kind kind) {
    return kind == Kind::kAllReduce || kind == Kind::kReduceScatter ? lanes_.front() : lanes_.back();
  }
  bool is_on_device(Kind kind) const {
    if (kind == Kind::kBarrier) return false;
    return (kind == Kind::kSend || kind == Kind::kReceive) == (lanes_.size() == 1);
  }

  uint64_t start(const CommOperation& o) override {
    if (o.in.device == Device::kCpu || !is_on_device(o.kind)) {
      on_host_.push_back({next_on_host_, relay(*staged_, o)});
      return kOnHost | next_on_host_++;
    }
    Lane& lane = lane_of(o.kind);
    throw_if_failed(&lane, kind_name(o.kind), o.name);
    if (!stream_.graph) wait_for_room(lane);
    ready_.record(stream_);
    ready_.make_wait(lane.queue);
    settle(&lane, enqueue(lane, o), kind_name(o.kind), o.name);
    if (stream_.graph) return note_in_graph(lane, o);
    note(lane, kind_name(o.kind), std::string(o.name), lane.queue);
    return lane.started * kLanes + static_cast<uint64_t>(&lane - lanes_.data());
  }

  // Notes what runs in a lane until the device gets to here in the order of `queue`.
  void note(Lane& lane, std::string kind, std::string name, const Stream& queue) {
    const std::lock_guard lock(mutex_);
    Running running{std::move(kind), std::move(name), ++lane.started, free_event()};
    INGOT_CUDA_CHECK(cudaEventRecord(running.end, cuda::queue_of(queue)));
    lane.running.push_back(std::move(running));
  }

  uint64_t note_in_graph(Lane& lane, const CommOperation& o) {
    if (!lane.in_graph) {
      lane.in_graph = std::make_shared<GraphPart>();
      stream_.graph->at_end.emplace_back([this, &lane] { end_capture(lane); });
      stream_.graph->at_launch.emplace_back([this, &lane, part = lane.in_graph] {
        wait_for_room(lane);
        note(lane, part->kind(), part->text(), stream_);
      });
    }
    lane.in_graph->add(o);
    const std::lock_guard lock(mutex_);
    ends_in_graph_.push_back(free_event());
    INGOT_CUDA_CHECK(cudaEventRecord(ends_in_graph_.back(), cuda::queue_of(lane.queue)));
    return kInGraph | (ends_in_graph_.size() - 1);
  }

  void end_capture(Lane& lane) {
    lane.in_graph = nullptr;
    const std::lock_guard lock(mutex_);
    free_.insert(free_.end(), ends_in_graph_.begin(), ends_in_graph_.end());
    ends_in_graph_.clear();
  }

  // The host runs ahead of the device by kMaxUnderWay collectives at most. If it is that far, it waits for
  // the oldest.
  void wait_for_room(Lane& lane) {
    cudaEvent_t oldest = nullptr;
    {
      const std::lock_guard lock(mutex_);
      if (lane.running.size() < kMaxUnderWay) return;
      oldest = lane.running.front().end;
    }
    INGOT_CUDA_CHECK(cudaEventSynchronize(oldest));  // only this thread records events again
    throw_if_failed();
    advance(lane);
  }

  ncclResult_t enqueue(Lane& lane, const CommOperation& o) {
    const auto type = static_cast<ncclDataType_t>(dtype_code(o.in.dtype));
    const auto op = static_cast<ncclRedOp_t>(op_code(o.op));
    const auto count = static_cast<size_t>(o.in.elements());
    cudaStream_t queue = cuda::queue_of(lane.queue);
    const std::lock_guard lock(comms_mutex_);
    if (!lane.comm) return ncclInvalidUsage;  // aborted a moment ago; settle() says why
    cuda::count_launch(cuda::LaunchKind::kLibrary);
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
        return library_.all_to_all(o.in.data, o.out.data, o.in.bytes() / static_cast<size_t>(size()), size(),
                                   lane.comm, queue);
      case Kind::kSend:
        return library_.send(o.in.data, count, type, o.peer, lane.comm, queue);
      case Kind::kReceive:
        return library_.receive(o.out.data, count, type, o.peer, lane.comm, queue);
      default:
        return library_.broadcast(o.in.data, o.out.data, count, type, o.peer, lane.comm, queue);
    }
  }

  bool is_done(uint64_t ticket) override {
    if (ticket & kOnHost) return on_host(ticket)->pending.is_done();
    if (ticket & kInGraph) return false;
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
    if (ticket & kInGraph) {
      const size_t number = ticket & ~kInGraph;  // beyond the events if an exception has ended the capture
      if (number < ends_in_graph_.size())
        INGOT_CUDA_CHECK(cudaStreamWaitEvent(cuda::queue_of(stream_), ends_in_graph_[number], 0));
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

  // Blocks until a call that NCCL may continue in the background has finished. Throws if it failed, or if the
  // watcher has found an error meanwhile.
  void settle(const Lane* lane, ncclResult_t result, std::string_view call, std::string_view operation = {}) {
    while (result == ncclInProgress && lane) {
      throw_if_failed(lane, call, operation);
      std::this_thread::yield();
      result = state_of(*lane);
    }
    throw_if_failed(lane, call, operation);
    if (result == ncclSuccess) return;
    fail_in(lane, call, operation, library_.words(result, lane ? lane->comm : nullptr));
  }

  // Throws the error that the watcher has found, and names the collective that ran then. If none did, because
  // another rank failed earlier than this one began, it names the call that the error prevents.
  void throw_if_failed(const Lane* lane = nullptr, std::string_view call = "wait",
                       std::string_view operation = {}) {
    if (!has_failed_) return;
    const std::lock_guard lock(mutex_);
    if (failed_->running.empty()) fail_in(lane, call, operation, failure_);
    const Running& first = failed_->running.front();
    fail(ErrorKind::kInternal, "{}", failure_text(name(), first.kind, first.name, first.number, failure_));
  }
  [[noreturn]] void fail_in(const Lane* lane, std::string_view call, std::string_view operation,
                            std::string_view cause) {
    const uint64_t number = lane ? lane->started + 1 : 0;
    fail(ErrorKind::kInternal, "{}", failure_text(name(), call, operation, number, cause));
  }

  // Ends all communicators in order. Returns ncclInProgress if one is not done within kFinalizeTime.
  ncclResult_t finalize_all() {
    for (size_t i = lanes_.size(); i-- > 0;) {
      Lane& lane = lanes_[i];
      if (!lane.comm) continue;
      const auto give_up = std::chrono::steady_clock::now() + kFinalizeTime;
      ncclResult_t result = library_.finalize(lane.comm);
      while (result == ncclInProgress && std::chrono::steady_clock::now() < give_up) {
        std::this_thread::sleep_for(std::chrono::microseconds(100));
        result = state_of(lane);
      }
      if (result != ncclSuccess) return result;
      library_.destroy(std::exchange(lane.comm, nullptr));
    }
    return ncclSuccess;
  }

  // Ends the kernels that wait for other ranks, and frees the communicators. NCCL returns from the abort of a
  // communicator only after the graphs that hold its collectives are gone, and they go when the group's own
  // thread has found the error. Until then that thread may wait for a kernel of any lane, so all are aborted
  // at the same time.
  void abort_all() {
    std::vector<std::thread> aborts;
    {
      const std::lock_guard lock(comms_mutex_);
      for (Lane& lane : lanes_)
        if (lane.comm)
          aborts.emplace_back([this, comm = std::exchange(lane.comm, nullptr)] { library_.abort(comm); });
    }
    for (std::thread& abort : aborts) abort.join();
  }

  // ---- the watcher thread ----

  void end_watch() {
    is_ending_ = true;
    if (watcher_.joinable()) watcher_.join();
  }

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
    lane.notes->begin(lane.running.front().kind.c_str(), lane.running.front().name);
  }

  // After an error, abort ends the kernels that wait for a lost rank, so that the host does not wait for
  // ever and can report the error.
  void find_error(Lane& lane) {
    const ncclResult_t result = state_of(lane);
    if (result == ncclSuccess || result == ncclInProgress || has_failed_) return;
    {
      const std::lock_guard lock(mutex_);
      failure_ = library_.words(result, lane.comm);
      failed_ = &lane;
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
  std::vector<Lane> lanes_;
  std::vector<cudaEvent_t> free_;           // guarded by mutex_
  std::vector<cudaEvent_t> ends_in_graph_;  // ends of the collectives in the graph that is captured now
  // The watcher's error and its lane, which notes no end after it. Both are guarded by mutex_.
  std::string failure_;
  const Lane* failed_ = nullptr;
  std::atomic<bool> has_failed_ = false, is_ending_ = false;
  std::thread watcher_;  // last, because it uses the other members
};

}  // namespace

bool can_use(Communicator& host) {
  if (host.size() == 1) return false;
  Library library;
  const RankDevice own = own_device(library.load());
  std::vector<RankDevice> all(static_cast<size_t>(host.size()));
  const auto bytes = static_cast<int64_t>(sizeof own);
  host.all_gather_into("devices", Tensor(all.data(), DType::u8, {host.size() * bytes}),
                       Tensor(const_cast<RankDevice*>(&own), DType::u8, {bytes}));
  return have_own_devices(all);
}

std::unique_ptr<Communicator> make_group(Communicator& host, Stream& stream) {
  Library library;
  library.load();
  return std::make_unique<NcclGroup>(library, host, stream, Use::kCollectives);
}

void finalize(std::unique_ptr<Communicator> group) { static_cast<NcclGroup&>(*group).finalize(); }

// NCCL connects two ranks at their first message, and until then the host of either waits for the other. That
// happens here, because later a rank may start to receive long before its neighbour can send.
std::unique_ptr<Communicator> make_link(std::unique_ptr<Communicator> host, Stream& stream) {
  Library library;
  library.load();
  auto link = std::make_unique<NcclGroup>(library, std::move(host), stream, Use::kMessages);
  Arena arena("first message", Arena::kDeviceAlign, Memory::kDevice);
  const Tensor first = arena.alloc(DType::u8, {1});
  if (link->rank() == 0)
    link->send("first message", first, 1);
  else
    link->receive("first message", first, 0);
  synchronize(stream);
  return link;
}

}  // namespace ingot::nccl
