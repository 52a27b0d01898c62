// A simulated NCCL: its interface over MPI and the simulated streams. As with the real library, a call
// returns at once, the collective waits for its stream, the collectives of a communicator run in order, and
// it ends only when all ranks have joined. Sums are added in the data's own dtype, rounded after every
// addition, one rank after the other.
//
// Communicators do not block (blocking = 0), and every call returns, stores and changes what the sources of
// NCCL 2.28.9 to 2.30.7 do (mpi/nccl_calls_test.cpp has the table). An initialisation, a split, a
// finalisation and the submission of a collective are jobs in the background. Here a job advances only when
// the thread that made the communicator asks for its state.
//
// INGOT_SIMULATED_NCCL makes a rank misbehave from a collective of any communicator on (numbered from 1 in
// each process):
//   fail:RANK:NUMBER    the communicator reports a system error there, and a remote error to the others
//   stall:RANK:NUMBER   the collective never ends there
//   split:RANK:0        splits fail there
// INGOT_SIMULATED_NCCL_LATE=N: a job is done only after it was asked about N times more, an abort takes N
// milliseconds. INGOT_SIMULATED_CTAS=N: an operation has N CTAs, whatever the limit of its communicator.
#include "tests/simulated_cuda/nccl/nccl.h"

#include <mpi.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/simulated_cuda/cuda_runtime.h"
#include "tests/simulated_cuda/nccl/simulated_nccl.h"
#include "tests/simulated_cuda/nccl/sums.h"
#include "tests/simulated_cuda/races.h"

namespace fs = std::filesystem;

// Shared by the work that is still in streams, so that a communicator can be freed before them.
struct NcclState {
  int rank = 0, size = 0;
  fs::path meeting;  // where ranks leave their world ranks, and errors
  MPI_Comm mpi = MPI_COMM_NULL;
  int splits = 0;  // communicators that were split from this one
  int ctas = 0;    // of an operation
  std::atomic<bool> is_aborted = false, has_failed = false;
  std::atomic<ncclResult_t> result = ncclSuccess;  // what ncclCommGetAsyncError says
  // The job in the background: returns its result once it is done. Only the thread that made the communicator
  // runs it.
  std::function<std::optional<ncclResult_t>()> job = nullptr;
  int polls = 0;  // before the job is done
  std::thread::id owner = std::this_thread::get_id();
  bool is_finalized = false;
  bool is_busy = false;  // a collective is in progress
  std::shared_ptr<int> graphs =
      std::make_shared<int>();  // every graph has a copy for each of its collectives
};
struct SimulatedNcclComm {
  std::shared_ptr<NcclState> state = std::make_shared<NcclState>();
};

namespace {

using simulated_cuda::Use;
using simulated_nccl::bytes_of;
using simulated_nccl::reduce;

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

int number_from(const char* variable, int otherwise) {
  const char* text = std::getenv(variable);
  return text ? std::atoi(text) : otherwise;
}

// NCCL's most CTAs where its communicator has no limit, and an H100's multiprocessors. A CTA of NCCL has one
// for itself.
constexpr int kDefaultCtas = 32, kMultiprocessors = 132;
int busy_multiprocessors = 0;

void begin_job(NcclState& state, std::function<std::optional<ncclResult_t>()> job) {
  state.result = ncclInProgress;
  state.polls = number_from("INGOT_SIMULATED_NCCL_LATE", 0);
  state.job = std::move(job);
}

void go_on(NcclState& state) {
  if (state.owner != std::this_thread::get_id() || !state.job || state.is_aborted || state.polls-- > 0)
    return;
  const std::optional<ncclResult_t> result = state.job();
  if (!result) return;
  state.job = nullptr;
  state.result = *result;
}

// Every call begins with this check (ncclCommEnsureReady). It refuses a call while a job is in progress.
ncclResult_t ensure_ready(const NcclState& state) {
  return state.result == ncclInProgress ? ncclInvalidArgument : state.result.load();
}

size_t size_of(ncclComm_t comm) { return comm ? static_cast<size_t>(comm->state->size) : 0; }

// Operation is one collective in progress. It has its own buffers, because MPI must not touch device memory
// while the host runs. A collective in a graph is in progress once in every launch.
struct Operation {
  std::shared_ptr<NcclState> state;
  std::vector<std::byte> sent = {}, received = {};
  std::vector<MPI_Request> requests = {};
  bool has_begun = false, is_stalled = false, is_counted = false;
  int ctas = 0;  // 0 until it has begun
};

// Ends the operation. After an abort MPI may still write into its buffers, so these are kept.
void finish(Operation& operation) {
  static std::vector<Operation> aborted;
  operation.state->is_busy = false;
  busy_multiprocessors -= operation.ctas;
  Operation finished = std::exchange(operation, {.state = operation.state});
  if (operation.state->is_aborted) aborted.push_back(std::move(finished));
}

// Counts the collective, and lets it fail or stall where that was asked for.
void count(Operation& operation) {
  if (std::exchange(operation.is_counted, true)) return;
  ++collectives;
  const Misbehaviour m = misbehaviour();
  if (m.rank != world_rank() || collectives < m.number) return;
  operation.is_stalled = m.kind == "fail" || m.kind == "stall";
  if (m.kind != "fail") return;
  operation.state->has_failed = true;
  std::fclose(std::fopen((operation.state->meeting / "error").c_str(), "w"));
}

bool is_ready_to_end(Operation& operation, const std::function<void(Operation&)>& begin) {
  if (operation.state->is_aborted) return true;
  count(operation);
  if (operation.is_stalled || operation.state->has_failed || operation.state->result == ncclRemoteError)
    return false;
  if (!operation.has_begun) {
    if (busy_multiprocessors + operation.state->ctas > kMultiprocessors) return false;
    operation.has_begun = true;
    busy_multiprocessors += operation.ctas = operation.state->ctas;
    if (std::exchange(operation.state->is_busy, true))
      simulated_cuda::report("nothing orders two collectives of a communicator");
    begin(operation);
  }
  int done = 0;
  MPI_Testall(static_cast<int>(operation.requests.size()), operation.requests.data(), &done,
              MPI_STATUSES_IGNORE);
  return done != 0;
}

// A collective: begin() starts the messages once the stream reaches it, end() has the received bytes.
// `uses` is the device memory that the collective reads and writes.
struct Collective {
  const char* name;
  cudaStream_t stream;
  std::vector<Use> uses;
  std::function<void(Operation&)> begin, end;
};

void enqueue(const std::shared_ptr<NcclState>& state, const Collective& c) {
  const auto operation = std::make_shared<Operation>();
  operation->state = state;
  record().push_back(c.name);
  if (!simulated_cuda::is_captured(c.stream)) count(*operation);
  simulated_cuda::enqueue_shared(
      c.stream, [operation, begin = c.begin] { return is_ready_to_end(*operation, begin); },
      [operation, end = c.end, name = c.name] {
        if (!operation->state->is_aborted) end(*operation);
        finish(*operation);
        record().push_back(std::string("end ") + name);
      },
      c.uses, state->graphs);
}

// The job that submits the collective. A collective of a single rank is submitted at once.
ncclResult_t submit(const std::shared_ptr<NcclState>& state, Collective collective, bool is_message) {
  if (state->size == 1 && !is_message) {
    enqueue(state, collective);
    return ncclSuccess;
  }
  begin_job(*state, [state, c = std::move(collective)] {
    enqueue(state, c);
    return ncclSuccess;
  });
  return ncclInProgress;
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
  ncclResult_t error = ncclSuccess;  // of a call in it
  std::shared_ptr<NcclState> state;
  cudaStream_t stream = nullptr;
  std::vector<Message> messages;
};
Group group;

// A call that finds the communicator not ready fails: the error becomes its state, and that of the group.
ncclResult_t refuse(NcclState& state, ncclResult_t error) {
  state.result = error;
  if (group.depth > 0) group.error = error;
  return error;
}

ncclResult_t start(ncclComm_t comm, Collective collective) {
  if (!comm) return ncclInvalidArgument;
  if (const ncclResult_t error = ensure_ready(*comm->state); error != ncclSuccess)
    return refuse(*comm->state, error);
  return submit(comm->state, std::move(collective), false);
}

ncclResult_t submit_messages() {
  if (const ncclResult_t error = std::exchange(group.error, ncclSuccess); error != ncclSuccess) {
    group.messages.clear();
    return error;
  }
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
        // As a message that does not fit NCCL's buffers does, it waits until it is received.
        MPI_Issend(o.sent.data() + sent, bytes, MPI_BYTE, m.peer, 0, o.state->mpi, &o.requests.back());
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
  return submit(group.state, {"messages", group.stream, std::move(uses), begin, end}, true);
}

ncclResult_t add_message(const Message& message, ncclComm_t comm, cudaStream_t stream) {
  if (!comm) return ncclInvalidArgument;
  if (const ncclResult_t error = ensure_ready(*comm->state); error != ncclSuccess)
    return refuse(*comm->state, error);
  if (!group.messages.empty() && (group.state != comm->state || group.stream != stream))
    simulated_cuda::report("the simulation knows groups of messages of one communicator and stream only");
  group.state = comm->state, group.stream = stream;
  group.messages.push_back(message);
  return group.depth > 0 ? ncclSuccess : submit_messages();
}

// Begins to meet the other ranks at a folder; has_met() ends it.
ncclComm_t meet(const fs::path& folder, int rank, int size, const ncclConfig_t& config) {
  auto* comm = new SimulatedNcclComm;
  NcclState& state = *comm->state;
  state.rank = rank, state.size = size, state.meeting = folder;
  state.ctas = number_from("INGOT_SIMULATED_CTAS",
                           config.maxCTAs == NCCL_CONFIG_UNDEF_INT ? kDefaultCtas : config.maxCTAs);
  fs::create_directories(folder);
  const fs::path own = folder / std::to_string(rank), part = folder / (std::to_string(rank) + ".part");
  if (std::FILE* file = std::fopen(part.c_str(), "w")) {
    std::fprintf(file, "%d", world_rank());
    std::fclose(file);
  }
  fs::rename(part, own);
  return comm;
}

bool has_met(NcclState& state) {
  std::vector<int> ranks;
  for (int rank = 0; rank < state.size; ++rank) {
    std::FILE* file = std::fopen((state.meeting / std::to_string(rank)).c_str(), "r");
    if (!file) return false;
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
  return true;
}

bool is_valid(const ncclConfig_t& config) {
  const int limits[] = {config.minCTAs, config.maxCTAs};
  for (const int limit : limits)
    if (limit != NCCL_CONFIG_UNDEF_INT && limit <= 0) return false;
  return config.blocking == 0 && config.minCTAs <= config.maxCTAs;  // Ingot's communicators never block
}

// A process that mpirun did not start is a job of its own.
void start_mpi() {
  int has_begun = 0;
  MPI_Initialized(&has_begun);
  if (has_begun) return;
  MPI_Init(nullptr, nullptr);
  std::atexit([] { MPI_Finalize(); });
}

}  // namespace

namespace simulated_nccl {

std::vector<std::string> take_record() { return std::exchange(record(), {}); }
void spoil_next_reduce_scatter(size_t least) { least_spoiled = least; }

void record_in(simulated_cuda::Stream* stream, const std::string& what) {
  simulated_cuda::enqueue(stream, [what] { record().push_back(what); });
}

void let_device_run(simulated_cuda::Stream* stream) {
  constexpr int kRounds = 100;  // in each, every stream that can proceed does one piece of its work
  simulated_cuda::enqueue_shared(
      stream, [round = 0]() mutable { return ++round > kRounds; }, [] {}, {}, nullptr);
  cudaStreamSynchronize(stream);
}

}  // namespace simulated_nccl

void* simulated_nccl_open(const char* name, int) noexcept {
  const char* gpus = std::getenv("INGOT_SIMULATED_GPUS");
  const bool is_there = gpus && std::strcmp(gpus, "own") == 0 && std::strcmp(name, "libnccl.so.2") == 0;
  if (is_there) start_mpi();
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
  *comm = nullptr;
  if (ranks < 1 || rank < 0 || rank >= ranks || !is_valid(*config)) return ncclInvalidArgument;
  *comm = meet(id.internal, rank, ranks, *config);
  NcclState* state = (*comm)->state.get();
  begin_job(*state,
            [state] { return has_met(*state) ? std::optional<ncclResult_t>(ncclSuccess) : std::nullopt; });
  return ncclInProgress;
}
ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t* child, ncclConfig_t* config) {
  if (!comm) return ncclInvalidArgument;
  NcclState& parent = *comm->state;
  if (const ncclResult_t error = ensure_ready(parent); error != ncclSuccess) return error;
  *child = nullptr;
  if (!is_valid(*config)) return ncclInvalidArgument;
  if (color != 0 || key != parent.rank)
    simulated_cuda::report("the simulation only copies communicators, in the order of their ranks");
  ncclComm_t made = meet(parent.meeting.string() + "-" + std::to_string(++parent.splits), parent.rank,
                         parent.size, *config);
  begin_job(parent, [made, child]() -> std::optional<ncclResult_t> {
    if (!has_met(*made->state)) return std::nullopt;
    *child = made;
    const Misbehaviour m = misbehaviour();
    return m.kind == "split" && m.rank == world_rank() ? ncclSystemError : ncclSuccess;
  });
  return ncclSuccess;  // although the job is still in progress
}
ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  if (!comm) return ncclSuccess;
  NcclState& state = *comm->state;
  if (const ncclResult_t error = ensure_ready(state); error != ncclSuccess) return refuse(state, error);
  if (std::exchange(state.is_finalized, true)) return refuse(state, ncclInvalidArgument);
  if (state.graphs.use_count() > 1)  // the library would wait for the end of the graph
    simulated_cuda::report("a communicator ends before a graph that has its collectives");
  begin_job(state, [] { return ncclSuccess; });
  return ncclInProgress;
}
ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  if (!comm) return ncclSuccess;
  NcclState& state = *comm->state;
  if (const ncclResult_t error = ensure_ready(state); error != ncclSuccess) {
    ++group.depth;  // the library returns from within its own group, which it does not end
    return error;
  }
  if (state.rank == 0) {
    std::error_code ignored;
    fs::remove_all(state.meeting, ignored);
  }
  state.is_aborted = true;  // what is still in streams ends
  delete comm;              // its MPI communicator stays until the end, because freeing it is a collective
  return ncclSuccess;
}
ncclResult_t ncclCommAbort(ncclComm_t comm) {
  if (!comm) return ncclSuccess;
  comm->state->is_aborted = true;
  ::usleep(static_cast<useconds_t>(1000 * number_from("INGOT_SIMULATED_NCCL_LATE", 0)));
  while (comm->state->graphs.use_count() > 1) ::usleep(100);
  delete comm;
  return ncclSuccess;
}
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* error) {
  if (!comm) return ncclInvalidArgument;
  NcclState& state = *comm->state;
  if (state.result == ncclSuccess && state.has_failed) state.result = ncclSystemError;
  if (state.result == ncclSuccess && fs::exists(state.meeting / "error")) state.result = ncclRemoteError;
  go_on(state);
  *error = state.result;
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
  return start(
      comm, {"all_reduce",
             stream,
             {{from, bytes, false}, {to, bytes, true}},
             [=](Operation& o) { gather_all(o, from, bytes); },
             [=](Operation& o) { std::memcpy(to, reduction(o, bytes, 0, count, type, op).data(), bytes); }});
}
ncclResult_t ncclAllGather(const void* from, void* to, size_t count, ncclDataType_t type, ncclComm_t comm,
                           cudaStream_t stream) {
  const size_t bytes = count * bytes_of(type);
  return start(comm, {"all_gather",
                      stream,
                      {{from, bytes, false}, {to, bytes * size_of(comm), true}},
                      [=](Operation& o) { gather_all(o, from, bytes); },
                      [=](Operation& o) { std::memcpy(to, o.received.data(), o.received.size()); }});
}
ncclResult_t ncclReduceScatter(const void* from, void* to, size_t count, ncclDataType_t type, ncclRedOp_t op,
                               ncclComm_t comm, cudaStream_t stream) {
  const size_t part = count * bytes_of(type), all = part * size_of(comm);
  const bool is_spoiled = type == ncclFloat32 && count >= least_spoiled;
  if (is_spoiled) least_spoiled = std::numeric_limits<size_t>::max();
  return start(comm, {"reduce_scatter",
                      stream,
                      {{from, all, false}, {to, part, true}},
                      [=](Operation& o) { gather_all(o, from, all); },
                      [=](Operation& o) {
                        const size_t at = part * static_cast<size_t>(o.state->rank);
                        std::memcpy(to, reduction(o, all, at, count, type, op).data(), part);
                        if (is_spoiled) *static_cast<float*>(to) = std::numeric_limits<float>::quiet_NaN();
                      }});
}
ncclResult_t ncclBroadcast(const void* from, void* to, size_t count, ncclDataType_t type, int root,
                           ncclComm_t comm, cudaStream_t stream) {
  const size_t bytes = count * bytes_of(type);
  return start(comm, {"broadcast",
                      stream,
                      {{from, bytes, false}, {to, bytes, true}},
                      [=](Operation& o) {
                        o.sent.resize(bytes);
                        if (o.state->rank == root) std::memcpy(o.sent.data(), from, bytes);
                        o.requests.emplace_back();
                        MPI_Ibcast(o.sent.data(), static_cast<int>(bytes), MPI_BYTE, root, o.state->mpi,
                                   &o.requests.back());
                      },
                      [=](Operation& o) { std::memcpy(to, o.sent.data(), bytes); }});
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
  return --group.depth > 0 ? ncclSuccess : submit_messages();
}
