// Tests that the simulated NCCL (../nccl/nccl.cpp) does what the library does, call by call: what a call on a
// communicator that does not block returns, what it stores through its pointer, and which state it leaves.
// Each row names the lines of NCCL's sources that define this (src/init.cc unless another file is named), for
// v2.28.9-1, v2.29.7-1 and v2.30.7-1.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "ingot/core/arena.h"
#include "ingot/core/copy.h"
#include "ingot/core/cuda/cuda_launch.h"
#include "tests/comm/mpi/ranks_main.h"
#include "tests/simulated_cuda/nccl/nccl.h"

namespace ingot {
namespace {

const auto kUntouched = reinterpret_cast<ncclComm_t>(1);

enum class Before { kNoComm, kReady, kInProgress, kFailed, kFinalized };
enum class Pointer { kUntouched, kNull, kSet };

class NcclCalls : public ::testing::Test {
 public:
  ncclResult_t init(int max_ctas = 16) {
    if (world->rank() == 0) ncclGetUniqueId(&id);
    world->broadcast("id", Tensor(&id, DType::u8, {sizeof id}), 0);
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    config.maxCTAs = max_ctas;
    return ncclCommInitRankConfig(&comm, world->size(), id, world->rank(), &config);
  }
  ncclResult_t split() {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    return ncclCommSplit(comm, 0, world->rank(), &child, &config);
  }
  ncclResult_t split_that_fails() {
    ::setenv("INGOT_SIMULATED_NCCL", ("split:" + std::to_string(world->rank()) + ":0").c_str(), 1);
    return split();
  }
  ncclResult_t all_reduce() {
    return ncclAllReduce(value.data, value.data, 1, ncclFloat32, ncclSum, comm, cuda::queue_of(stream));
  }
  ncclResult_t message() {
    const int other = world->rank() ^ 1;
    if (world->rank() % 2 == 0)
      return ncclSend(value.data, 1, ncclFloat32, other, comm, cuda::queue_of(stream));
    return ncclRecv(value.data, 1, ncclFloat32, other, comm, cuda::queue_of(stream));
  }
  ncclResult_t abort() { return ncclCommAbort(std::exchange(comm, nullptr)); }

  ncclResult_t state() {
    ncclResult_t result = ncclSuccess;
    EXPECT_EQ(ncclCommGetAsyncError(comm, &result), ncclSuccess);
    return result;
  }
  // Returns the state that another thread gets. Jobs of the simulation advance only when this thread asks.
  ncclResult_t state_now() {
    ncclResult_t result = ncclSuccess;
    std::thread([&] { result = state(); }).join();
    return result;
  }
  // Polls until the state is `wanted`, for ten seconds at most.
  ncclResult_t settled(ncclResult_t wanted) {
    const auto give_up = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    ncclResult_t result = state();
    while (result != wanted && std::chrono::steady_clock::now() < give_up) result = state();
    return result;
  }

  void SetUp() override {
    const char* gpus = std::getenv("INGOT_SIMULATED_GPUS");
    if (!gpus || std::string(gpus) != "own" || world->size() == 1) GTEST_SKIP() << "the ranks share a GPU";
  }
  void bring_to(Before before) {
    if (before == Before::kNoComm) return;
    init();
    if (before == Before::kInProgress) return;
    settled(ncclSuccess);
    if (before == Before::kFinalized) ncclCommFinalize(comm);
    if (before == Before::kFailed) split_that_fails();
    settled(before == Before::kFailed ? ncclSystemError : ncclSuccess);
    ::unsetenv("INGOT_SIMULATED_NCCL");
    if (child != kUntouched) ncclCommAbort(std::exchange(child, kUntouched));
  }
  void end() {
    synchronize(stream);
    world->barrier("row ends");
    ::unsetenv("INGOT_SIMULATED_NCCL");
    for (ncclComm_t* each : {&comm, &child})
      if (*each && *each != kUntouched) ncclCommAbort(*each);
    comm = nullptr, child = kUntouched;
    if (world->rank() > 0) return;
    for (const char* split : {"", "-1"}) std::filesystem::remove_all(id.internal + std::string(split));
  }

  ncclUniqueId id{};
  ncclComm_t comm = nullptr, child = kUntouched;
  Stream stream = make_stream(Device::kCuda);
  Arena arena{"test", 1024, Memory::kDevice};
  Tensor value = arena.alloc(DType::f32, {1});
};

Pointer kind_of(ncclComm_t comm) {
  return comm == kUntouched ? Pointer::kUntouched : comm ? Pointer::kSet : Pointer::kNull;
}

// The state after a call: its result, its pointer, and the communicator's state, if there still is a
// communicator.
struct Left {
  ncclResult_t result;
  Pointer pointer = Pointer::kUntouched;
  std::optional<ncclResult_t> state;
};

struct Row {
  const char* call;
  Before before;
  std::function<ncclResult_t(NcclCalls&)> run;
  Left left;
  Left later;  // once the job is done; `result` is not used
  const char* lines;
};

ncclResult_t state_of_null(NcclCalls& c) {
  ncclResult_t result = ncclSuccess;
  return ncclCommGetAsyncError(c.comm, &result);
}
// Returns what the end of a group says in which a message was submitted. The message must return `wanted`.
ncclResult_t group_of_message(NcclCalls& c, ncclResult_t wanted) {
  ncclGroupStart();
  EXPECT_EQ(c.message(), wanted);
  EXPECT_TRUE(wanted != ncclSuccess || c.state() == ncclSuccess);  // nothing is submitted yet
  return ncclGroupEnd();
}
ncclResult_t group(NcclCalls& c) { return group_of_message(c, ncclSuccess); }
ncclResult_t refused_group(NcclCalls& c) { return group_of_message(c, ncclInvalidArgument); }
ncclResult_t end_of_no_group(NcclCalls& /*unused*/) { return ncclGroupEnd(); }
ncclResult_t finalize(NcclCalls& c) { return ncclCommFinalize(c.comm); }
ncclResult_t destroy(NcclCalls& c) { return ncclCommDestroy(std::exchange(c.comm, nullptr)); }
// The library returns from within its own group, and the thread stays in it.
ncclResult_t refused_destroy(NcclCalls& c) {
  const ncclResult_t result = ncclCommDestroy(c.comm);
  EXPECT_EQ(ncclGroupEnd(), ncclSuccess);
  return result;
}

const std::vector<Row>& rows() {
  using enum Before;
  using enum Pointer;
  constexpr ncclResult_t kOk = ncclSuccess, kJob = ncclInProgress, kWrong = ncclInvalidArgument,
                         kError = ncclSystemError;
  const Left gone{kOk, kUntouched, std::nullopt}, refused{kWrong, kUntouched, std::nullopt};
  const Left job{kJob, kUntouched, kJob}, spoilt{kWrong, kUntouched, kWrong},
      error{kError, kUntouched, kError};
  const Left ready{kOk, kUntouched, kOk};
  using Calls = NcclCalls;
  // clang-format off
  static const std::vector<Row> kRows = {
      {"split", kReady, &Calls::split, {kOk, kNull, kJob}, {kOk, kSet, kOk},
       "2572 2678 2679 1614, group.cc 711 | 2766 3051 3056 1743, group.cc 801 | 3099 3403 3411 1961, group.cc 830"},
      {"split that fails", kReady, &Calls::split_that_fails, {kOk, kNull, kJob}, {kOk, kSet, kError},
       "1614, group.cc 391 | 1743, group.cc 437 | 1961, group.cc 461"},
      {"split", kInProgress, &Calls::split, {kWrong, kUntouched, kJob}, ready,
       "381 2568, group.cc 671 | 408 2762, group.cc 761 | 430 3095, group.cc 790"},
      {"split", kFailed, &Calls::split, error, error, "385 2568 | 412 2762 | 434 3095"},
      {"split", kNoComm, &Calls::split, refused, gone, "2558 | 2752 | 3082"},
      {"state", kNoComm, state_of_null, refused, gone, "2707 | 3084 | 3450"},
      {"all_reduce", kReady, &Calls::all_reduce, job, ready,
       "enqueue.cc 2658, group.cc 724 | enqueue.cc 3019, group.cc 814 | enqueue.cc 3167, group.cc 843"},
      {"all_reduce", kInProgress, &Calls::all_reduce, spoilt, ready,
       "enqueue.cc 2637 2661 | enqueue.cc 2996 3022 | enqueue.cc 3141 3170"},
      {"all_reduce", kFailed, &Calls::all_reduce, error, error,
       "enqueue.cc 2637 | enqueue.cc 2996 | enqueue.cc 3141"},
      {"all_reduce", kNoComm, &Calls::all_reduce, refused, gone,
       "enqueue.cc 2622 | enqueue.cc 2981 | enqueue.cc 3126"},
      {"message", kReady, &Calls::message, job, ready,
       "enqueue.cc 2658, group.cc 724 | enqueue.cc 3019, group.cc 814 | enqueue.cc 3167, group.cc 843"},
      {"group of messages", kReady, group, job, ready,
       "group.cc 669 738 | group.cc 759 828 | group.cc 788 857"},
      {"group of messages", kInProgress, refused_group, spoilt, ready,
       "enqueue.cc 2661, group.cc 671 | enqueue.cc 3022, group.cc 761 | enqueue.cc 3170, group.cc 790"},
      {"end of no group", kReady, end_of_no_group, {ncclInvalidUsage, kUntouched, kOk}, ready,
       "group.cc 658 | group.cc 748 | group.cc 777"},
      {"finalize", kReady, finalize, job, ready, "2293, group.cc 711 | 2490, group.cc 801 | 2814, group.cc 830"},
      {"finalize", kFinalized, finalize, spoilt, spoilt, "2277 2300 | 2474 2497 | 2796 2820"},
      {"finalize", kInProgress, finalize, spoilt, ready, "2274 2300 | 2471 2497 | 2793 2820"},
      {"finalize", kFailed, finalize, error, error, "2274 2300 | 2471 2497 | 2793 2820"},
      {"finalize", kNoComm, finalize, gone, gone, "2271 | 2468 | 2790"},
      {"destroy", kFinalized, destroy, gone, gone,
       "2389, group.cc 53 743 | 2586, group.cc 57 833 | 2910, group.cc 56 862"},
      {"destroy", kInProgress, refused_destroy, {kWrong, kUntouched, kJob}, ready,
       "2372 2381 | 2569 2578 | 2892 2901"},
      {"destroy", kNoComm, destroy, gone, gone, "2361 | 2558 | 2882"},
      {"abort", kReady, &Calls::abort, gone, gone,
       "2519 2538, group.cc 53 | 2713 2732, group.cc 57 | 3041 3061, group.cc 56"},
      {"abort", kInProgress, &Calls::abort, gone, gone, "376 2519 2538 | 403 2713 2732 | 426 3041 3061"},
      {"abort", kFailed, &Calls::abort, gone, gone, "2519 2538 | 2713 2732 | 3041 3061"},
      {"abort", kNoComm, &Calls::abort, gone, gone, "2507 | 2701 | 3029"},
  };
  // clang-format on
  return kRows;
}

TEST_F(NcclCalls, ReturnStoreAndLeaveWhatTheLibraryDoes) {
  for (const Row& row : rows()) {
    SCOPED_TRACE(std::string(row.call) + ", before: " + std::to_string(static_cast<int>(row.before)) + ", " +
                 row.lines);
    bring_to(row.before);
    EXPECT_EQ(row.run(*this), row.left.result);
    EXPECT_EQ(kind_of(child), row.left.pointer);
    if (row.left.state) {
      EXPECT_EQ(state_now(), *row.left.state);
      EXPECT_EQ(settled(*row.later.state), *row.later.state);
      EXPECT_EQ(kind_of(child), row.later.pointer);
    }
    end();
  }
}

// A configuration that NCCL does not take makes no communicator: 1865 2040 | 2045 2237 | 2325 2557.
TEST_F(NcclCalls, InitStoresAtOnceUnlessItRefuses) {
  EXPECT_EQ(init(0), ncclInvalidArgument);
  EXPECT_EQ(kind_of(comm), Pointer::kNull);
  EXPECT_EQ(init(), ncclInProgress);  // 2001 2165 | 2198 2362 | 2515 2682
  EXPECT_EQ(kind_of(comm), Pointer::kSet);
  EXPECT_EQ(state_now(), ncclInProgress);
  EXPECT_EQ(settled(ncclSuccess), ncclSuccess);
  end();
}

}  // namespace
}  // namespace ingot
