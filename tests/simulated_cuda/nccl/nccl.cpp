// A simulated NCCL: its interface over MPI and the simulated streams. As with the real library, a call returns at once, the
// collective waits for its stream, the collectives of a communicator run in order, and it ends only when all ranks have
// joined. Sums are added in the data's own dtype, rounded after every addition, one rank after the other. Initialisation
// goes on in the background until all ranks have called it.
//
// INGOT_SIMULATED_NCCL makes a rank misbehave from a collective of any communicator on (numbered from 1 in each process):
//   fail:RANK:NUMBER    the communicator reports a system error there, and a remote error to the others
//   stall:RANK:NUMBER   the collective never ends there
#include "tests/simulated_cuda/nccl/nccl.h"

#include <mpi.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "ingot/core/dtype.h"
#include "ingot/core/float16.h"
#include "tests/simulated_cuda/cuda_runtime.h"
#include "tests/simulated_cuda/nccl/simulated_nccl.h"
#include "tests/simulated_cuda/races.h"

namespace fs = std::filesystem;

// Shared by the work that is still in streams, so that a communicator can be freed before them.
struct NcclState {
  int rank = 0, size = 0;
  std::vector<int> world_ranks;
  fs::path meeting;  // where ranks leave their world ranks, and errors
  MPI_Comm mpi = MPI_COMM_NULL;
  int splits = 0;  // communicators that were split from this one
  std::atomic<bool> is_aborted = false;
  std::atomic<ncclResult_t> error = ncclInProgress;
  bool is_busy = false;  // a collective is under way
  std::shared_ptr<int> graphs =
      std::make_shared<int>();  // every graph has a copy for each of its collectives
  bool is_ready() const { return mpi != MPI_COMM_NULL; }
};
struct SimulatedNcclComm {
  std::shared_ptr<NcclState> state = std::make_shared<NcclState>();
};

namespace {

using simulated_cuda::Use;

std::atomic<size_t> least_spoiled = std::numeric_limits<size_t>::max();  // numbers of a reduce_scatter

std::vector<std::string>& record() {
  static std::vector<std::string> calls;
  return calls;
}

int world_rank() {
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  return rank;
}

struct Misbehaviour {
  std::string kind;
  int rank = -1;
  int64_t number = 0;
};
Misbehaviour misbehaviour() {
  Misbehaviour m;
  const char* text = std::getenv("INGOT_SIMULATED_NCCL");
  char kind[16] = "";
  long long number = 0;
  if (text && std::sscanf(text, "%15[a-z]:%d:%lld", kind, &m.rank, &number) == 3)
    m.kind = kind, m.number = number;
  return m;
}
int64_t collectives = 0;  // those that this process started, in all communicators

size_t bytes_of(ncclDataType_t type) {
  switch (type) {
    case ncclInt8:
    case ncclUint8:
      return 1;
    case ncclFloat16:
    case ncclBfloat16:
      return 2;
    case ncclInt32:
    case ncclUint32:
    case ncclFloat32:
      return 4;
    default:
      return 8;
  }
}

template <typename T>
T reduced(T a, T b, ncclRedOp_t op) {
  const auto value = [](T x) {
    if constexpr (std::is_integral_v<T> || std::is_same_v<T, double>)
      return x;
    else
      return static_cast<float>(x);
  };
  if (op == ncclMax) return value(b) > value(a) ? b : a;
  if (op == ncclMin) return value(b) < value(a) ? b : a;
  return T(value(a) + value(b));
}

template <typename T>
void reduce_into(std::byte* sum, const std::byte* more, size_t count, ncclRedOp_t op) {
  for (size_t i = 0; i < count; ++i) {
    T a, b;
    std::memcpy(&a, sum + i * sizeof(T), sizeof(T));
    std::memcpy(&b, more + i * sizeof(T), sizeof(T));
    a = reduced(a, b, op);
    std::memcpy(sum + i * sizeof(T), &a, sizeof(T));
  }
}
void reduce(std::byte* sum, const std::byte* more, size_t count, ncclDataType_t type, ncclRedOp_t op) {
  switch (type) {
    case ncclFloat32:
      return reduce_into<float>(sum, more, count, op);
    case ncclFloat64:
      return reduce_into<double>(sum, more, count, op);
    case ncclBfloat16:
      return reduce_into<ingot::bf16>(sum, more, count, op);
    case ncclFloat16:
      return reduce_into<ingot::f16>(sum, more, count, op);
    case ncclInt32:
      return reduce_into<int32_t>(sum, more, count, op);
    default:
      return reduce_into<int64_t>(sum, more, count, op);
  }
}

// One collective under way. Its buffers are its own, because MPI must not touch device memory while the host runs. In a
// graph it is under way once in every launch.
struct Operation {
  std::shared_ptr<NcclState> state;
  std::vector<std::byte> sent = {}, received = {};
  std::vector<MPI_Request> requests = {};
  bool has_begun = false, is_stalled = false, is_counted = false;
};

// Ends the operation. After an abort MPI may still write into its buffers, so these are kept.
void finish(Operation& operation) {
  static std::vector<Operation> aborted;
  operation.state->is_busy = false;
  Operation finished = std::exchange(operation, {.state = operation.state});
  if (operation.state->is_aborted) aborted.push_back(std::move(finished));
}

// Counts the collective, and lets it fail or stall where that was asked for.
void count(Operation& operation) {
  if (std::exchange(operation.is_counted, true)) return;
  ++collectives;
  const Misbehaviour m = misbehaviour();
  if (m.rank != world_rank() || collectives < m.number) return;
  operation.is_stalled = true;
  if (m.kind != "fail") return;
  operation.state->error = ncclSystemError;
  std::fclose(std::fopen((operation.state->meeting / "error").c_str(), "w"));
}

bool is_ready_to_end(Operation& operation, const std::function<void(Operation&)>& begin) {
  if (operation.state->is_aborted) return true;
  count(operation);
  if (!operation.state->is_ready() || operation.is_stalled || operation.state->error == ncclSystemError ||
      operation.state->error == ncclRemoteError)
    return false;
  if (!operation.has_begun) {
    operation.has_begun = true;
    if (std::exchange(operation.state->is_busy, true))
      simulated_cuda::report("nothing orders two collectives of a communicator");
    begin(operation);
  }
  int done = 0;
  MPI_Testall(static_cast<int>(operation.requests.size()), operation.requests.data(), &done,
              MPI_STATUSES_IGNORE);
  return done != 0;
}

// Enqueues a collective: begin() starts the messages once the stream reaches it, end() has the received bytes.
// `uses` is the device memory that the collective reads and writes.
ncclResult_t enqueue(const char* name, ncclComm_t comm, cudaStream_t stream, std::vector<Use> uses,
                     std::function<void(Operation&)> begin, std::function<void(Operation&)> end) {
  const auto operation = std::make_shared<Operation>();
  operation->state = comm->state;
  record().push_back(name);
  if (!simulated_cuda::is_captured(stream)) count(*operation);
  simulated_cuda::enqueue_shared(
      stream, [operation, begin = std::move(begin)] { return is_ready_to_end(*operation, begin); },
      [operation, end = std::move(end), name] {
        if (!operation->state->is_aborted) end(*operation);
        finish(*operation);
        record().push_back(std::string("end ") + name);
      },
      std::move(uses), comm->state->graphs);
  return ncclSuccess;
}

void gather_all(Operation& o, const void* from, size_t bytes) {
  o.sent.assign(static_cast<const std::byte*>(from), static_cast<const std::byte*>(from) + bytes);
  o.received.resize(bytes * static_cast<size_t>(o.state->size));
  o.requests.emplace_back();
  MPI_Iallgather(o.sent.data(), static_cast<int>(bytes), MPI_BYTE, o.received.data(), static_cast<int>(bytes),
                 MPI_BYTE, o.state->mpi, &o.requests.back());
}

// Returns the reduction of `count` elements at the same place of every rank's `stride` bytes.
std::vector<std::byte> reduction(const Operation& o, size_t stride, size_t at, size_t count,
                                 ncclDataType_t type, ncclRedOp_t op) {
  const std::byte* first = o.received.data() + at;
  std::vector<std::byte> sum(first, first + count * bytes_of(type));
  for (int rank = 1; rank < o.state->size; ++rank)
    reduce(sum.data(), first + static_cast<size_t>(rank) * stride, count, type, op);
  return sum;
}

// Messages between ncclGroupStart and ncclGroupEnd are one piece of work.
struct Message {
  bool is_send;
  void* data;
  size_t bytes;
  int peer;
};
struct Group {
  int depth = 0;
  ncclComm_t comm = nullptr;
  cudaStream_t stream = nullptr;
  std::vector<Message> messages;
};
Group group;

ncclResult_t enqueue_messages() {
  const auto messages = std::make_shared<std::vector<Message>>(std::exchange(group.messages, {}));
  if (messages->empty()) return ncclSuccess;
  const auto begin = [messages](Operation& o) {
    size_t sent = 0, received = 0;
    for (const Message& m : *messages) (m.is_send ? sent : received) += m.bytes;
    o.sent.resize(sent), o.received.resize(received);
    sent = received = 0;
    for (const Message& m : *messages) {
      o.requests.emplace_back();
      const int bytes = static_cast<int>(m.bytes);
      if (m.is_send) {
        std::memcpy(o.sent.data() + sent, m.data, m.bytes);
        MPI_Isend(o.sent.data() + sent, bytes, MPI_BYTE, m.peer, 0, o.state->mpi, &o.requests.back());
        sent += m.bytes;
      } else {
        MPI_Irecv(o.received.data() + received, bytes, MPI_BYTE, m.peer, 0, o.state->mpi, &o.requests.back());
        received += m.bytes;
      }
    }
  };
  const auto end = [messages](Operation& o) {
    size_t at = 0;
    for (const Message& m : *messages)
      if (!m.is_send) std::memcpy(m.data, o.received.data() + at, m.bytes), at += m.bytes;
  };
  std::vector<Use> uses;
  for (const Message& m : *messages) uses.push_back({m.data, m.bytes, !m.is_send});
  return enqueue("messages", group.comm, group.stream, std::move(uses), begin, end);
}

ncclResult_t add_message(const Message& message, ncclComm_t comm, cudaStream_t stream) {
  if (group.depth > 0 && group.comm && (group.comm != comm || group.stream != stream) &&
      !group.messages.empty())
    return ncclInvalidUsage;  // the simulation knows groups of one communicator and stream only
  group.comm = comm, group.stream = stream;
  group.messages.push_back(message);
  return group.depth > 0 ? ncclSuccess : enqueue_messages();
}

// Begins to meet the other ranks at a folder; go_on_meeting() ends it.
ncclComm_t meet(const fs::path& folder, int rank, int size) {
  auto* comm = new SimulatedNcclComm;
  NcclState& state = *comm->state;
  state.rank = rank, state.size = size, state.meeting = folder;
  fs::create_directories(folder);
  const fs::path own = folder / std::to_string(rank), part = folder / (std::to_string(rank) + ".part");
  if (std::FILE* file = std::fopen(part.c_str(), "w")) {
    std::fprintf(file, "%d", world_rank());
    std::fclose(file);
  }
  fs::rename(part, own);
  return comm;
}

void go_on_meeting(NcclState& state) {
  if (state.is_ready() || state.is_aborted) return;
  std::vector<int> ranks;
  for (int rank = 0; rank < state.size; ++rank) {
    std::FILE* file = std::fopen((state.meeting / std::to_string(rank)).c_str(), "r");
    if (!file) return;
    int number = 0;
    if (std::fscanf(file, "%d", &number) == 1) ranks.push_back(number);
    std::fclose(file);
  }
  MPI_Group all = MPI_GROUP_NULL, part = MPI_GROUP_NULL;
  MPI_Comm_group(MPI_COMM_WORLD, &all);
  MPI_Group_incl(all, state.size, ranks.data(), &part);
  const int tag = static_cast<int>(std::hash<std::string>{}(state.meeting.string()) % 30000);
  MPI_Comm_create_group(MPI_COMM_WORLD, part, tag, &state.mpi);
  MPI_Group_free(&part);
  MPI_Group_free(&all);
  state.world_ranks = ranks;
  state.error = ncclSuccess;
}

}  // namespace

namespace simulated_nccl {

std::vector<std::string> take_record() { return std::exchange(record(), {}); }
void spoil_next_reduce_scatter(size_t least) { least_spoiled = least; }

void record_in(simulated_cuda::Stream* stream, const std::string& what) {
  simulated_cuda::enqueue(stream, [what] { record().push_back(what); });
}

}  // namespace simulated_nccl

void* simulated_nccl_open(const char* name, int) noexcept {
  const char* gpus = std::getenv("INGOT_SIMULATED_GPUS");
  const bool is_there = gpus && std::strcmp(gpus, "own") == 0 && std::strcmp(name, "libnccl.so.2") == 0;
  return is_there ? &collectives : nullptr;
}

void* simulated_nccl_find(void*, const char* name) noexcept {
  const std::string_view wanted = name;
#define FUNCTION(function) \
  if (wanted == #function) return reinterpret_cast<void*>(&function)
  FUNCTION(ncclGetVersion);
  FUNCTION(ncclGetUniqueId);
  FUNCTION(ncclCommInitRankConfig);
  FUNCTION(ncclCommSplit);
  FUNCTION(ncclCommFinalize);
  FUNCTION(ncclCommDestroy);
  FUNCTION(ncclCommAbort);
  FUNCTION(ncclCommGetAsyncError);
  FUNCTION(ncclGetErrorString);
  FUNCTION(ncclGetLastError);
  FUNCTION(ncclAllReduce);
  FUNCTION(ncclAllGather);
  FUNCTION(ncclReduceScatter);
  FUNCTION(ncclBroadcast);
  FUNCTION(ncclSend);
  FUNCTION(ncclRecv);
  FUNCTION(ncclGroupStart);
  FUNCTION(ncclGroupEnd);
#undef FUNCTION
  return nullptr;
}

ncclResult_t ncclGetVersion(int* version) {
  *version = 22809;
  return ncclSuccess;
}
ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  std::random_device random;
  std::snprintf(id->internal, sizeof id->internal, "%s/ingot-nccl-%d-%08x%08x",
                fs::temp_directory_path().c_str(), static_cast<int>(::getpid()), random(), random());
  return ncclSuccess;
}
ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank,
                                    ncclConfig_t* config) {
  if (config->blocking) return ncclInvalidArgument;  // Ingot never blocks there
  *comm = meet(id.internal, rank, ranks);
  return ncclInProgress;
}
ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t* part, ncclConfig_t*) {
  if (!comm->state->is_ready() || color != 0 || key != comm->state->rank)
    return ncclInvalidUsage;  // the simulation only copies communicators
  NcclState& state = *comm->state;
  *part = meet(state.meeting.string() + "-" + std::to_string(++state.splits), state.rank, state.size);
  return ncclInProgress;
}
ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  if (comm->state->graphs.use_count() > 1)  // the library would wait for the end of the graph
    simulated_cuda::report("a communicator ends before a graph that has its collectives");
  return comm->state->error;
}
ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  NcclState& state = *comm->state;
  if (state.mpi != MPI_COMM_NULL && state.rank == 0) {
    std::error_code ignored;
    fs::remove_all(state.meeting, ignored);
  }
  state.is_aborted = true;  // what is still in streams ends
  delete comm;              // its MPI communicator stays until the end, because freeing it is a collective
  return ncclSuccess;
}
ncclResult_t ncclCommAbort(ncclComm_t comm) {
  comm->state->is_aborted = true;
  while (comm->state->graphs.use_count() > 1) ::usleep(100);
  delete comm;
  return ncclSuccess;
}
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* error) {
  NcclState& state = *comm->state;
  int is_main = 0;
  MPI_Is_thread_main(&is_main);
  if (is_main) go_on_meeting(state);
  if (state.error == ncclSuccess && fs::exists(state.meeting / "error")) state.error = ncclRemoteError;
  *error = state.error;
  return ncclSuccess;
}
const char* ncclGetErrorString(ncclResult_t result) {
  constexpr const char* kTexts[] = {"no error",
                                    "unhandled cuda error",
                                    "unhandled system error",
                                    "internal error",
                                    "invalid argument",
                                    "invalid usage",
                                    "remote process exited or there was a network error",
                                    "in progress"};
  return kTexts[result];
}
const char* ncclGetLastError(ncclComm_t) { return "simulated"; }

ncclResult_t ncclAllReduce(const void* from, void* to, size_t count, ncclDataType_t type, ncclRedOp_t op,
                           ncclComm_t comm, cudaStream_t stream) {
  const size_t bytes = count * bytes_of(type);
  return enqueue(
      "all_reduce", comm, stream, {{from, bytes, false}, {to, bytes, true}},
      [=](Operation& o) { gather_all(o, from, bytes); },
      [=](Operation& o) { std::memcpy(to, reduction(o, bytes, 0, count, type, op).data(), bytes); });
}
ncclResult_t ncclAllGather(const void* from, void* to, size_t count, ncclDataType_t type, ncclComm_t comm,
                           cudaStream_t stream) {
  const size_t bytes = count * bytes_of(type);
  return enqueue(
      "all_gather", comm, stream,
      {{from, bytes, false}, {to, bytes * static_cast<size_t>(comm->state->size), true}},
      [=](Operation& o) { gather_all(o, from, bytes); },
      [=](Operation& o) { std::memcpy(to, o.received.data(), o.received.size()); });
}
ncclResult_t ncclReduceScatter(const void* from, void* to, size_t count, ncclDataType_t type, ncclRedOp_t op,
                               ncclComm_t comm, cudaStream_t stream) {
  const size_t part = count * bytes_of(type), all = part * static_cast<size_t>(comm->state->size);
  const size_t at = part * static_cast<size_t>(comm->state->rank);
  const bool is_spoiled = type == ncclFloat32 && count >= least_spoiled;
  if (is_spoiled) least_spoiled = std::numeric_limits<size_t>::max();
  return enqueue(
      "reduce_scatter", comm, stream, {{from, all, false}, {to, part, true}},
      [=](Operation& o) { gather_all(o, from, all); },
      [=](Operation& o) {
        std::memcpy(to, reduction(o, all, at, count, type, op).data(), part);
        if (is_spoiled) *static_cast<float*>(to) = std::numeric_limits<float>::quiet_NaN();
      });
}
ncclResult_t ncclBroadcast(const void* from, void* to, size_t count, ncclDataType_t type, int root,
                           ncclComm_t comm, cudaStream_t stream) {
  const size_t bytes = count * bytes_of(type);
  const bool is_root = comm->state->rank == root;
  return enqueue(
      "broadcast", comm, stream, {{from, bytes, false}, {to, bytes, true}},
      [=](Operation& o) {
        o.sent.resize(bytes);
        if (is_root) std::memcpy(o.sent.data(), from, bytes);
        o.requests.emplace_back();
        MPI_Ibcast(o.sent.data(), static_cast<int>(bytes), MPI_BYTE, root, o.state->mpi, &o.requests.back());
      },
      [=](Operation& o) { std::memcpy(to, o.sent.data(), bytes); });
}
ncclResult_t ncclSend(const void* from, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  return add_message({true, const_cast<void*>(from), count * bytes_of(type), peer}, comm, stream);
}
ncclResult_t ncclRecv(void* to, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  return add_message({false, to, count * bytes_of(type), peer}, comm, stream);
}
ncclResult_t ncclGroupStart() {
  ++group.depth;
  return ncclSuccess;
}
ncclResult_t ncclGroupEnd() {
  if (group.depth == 0) return ncclInvalidUsage;
  return --group.depth > 0 ? ncclSuccess : enqueue_messages();
}
