// The group over NCCL (comm/group_nccl.cpp) with a simulated NCCL (../nccl/nccl.cpp). Ranks that share a GPU
// do not use NCCL, so these tests need INGOT_SIMULATED_GPUS=own.
#include <gmock/gmock.h>

#include <chrono>
#include <cstdlib>
#include <optional>
#include <string>
#include <thread>

#include "ingot/comm/device_group.h"
#include "ingot/comm/nccl_group.h"
#include "ingot/core/copy.h"
#include "ingot/core/cuda/cuda_graph.h"
#include "ingot/core/staging.h"
#include "tests/comm/mpi/ranks_main.h"
#include "tests/reference/error_of.h"
#include "tests/simulated_cuda/nccl/simulated_nccl.h"

namespace ingot {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Sets a variable of the environment until it is destroyed.
class Variable {
 public:
  Variable(const char* name, const char* value) : name_(name) {
    if (const char* before = std::getenv(name)) before_ = before;
    ::setenv(name, value, 1);
  }
  ~Variable() { before_ ? ::setenv(name_, before_->c_str(), 1) : ::unsetenv(name_); }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  const char* name_;
  std::optional<std::string> before_;
};

class NcclTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const char* gpus = std::getenv("INGOT_SIMULATED_GPUS");
    if (!gpus || std::string(gpus) != "own" || world->size() == 1) GTEST_SKIP() << "the ranks share a GPU";
    group = device_group(*world, stream);
    simulated_nccl::take_record();
  }
  void TearDown() override {
    ::unsetenv("INGOT_SIMULATED_NCCL");
    group.reset();
    if (!IsSkipped()) world->barrier("test ends");
  }

  // A tensor on the device.
  Tensor put(DType dtype, const std::vector<float>& values) {
    const Tensor t = arena.alloc(dtype, {std::ssize(values)});
    const Tensor host = staging.room(t);
    for (size_t i = 0; i < values.size(); ++i) {
      if (dtype == DType::f32)
        host.as<float>()[i] = values[i];
      else
        host.as<bf16>()[i] = bf16(values[i]);
    }
    staging.write(t, stream);
    return t;
  }
  std::vector<float> read(const Tensor& t) {
    const Tensor host = staging.read(t, stream);
    std::vector<float> values;
    for (int64_t i = 0; i < t.elements(); ++i)
      values.push_back(t.dtype == DType::f32 ? host.as<float>()[i] : static_cast<float>(host.as<bf16>()[i]));
    return values;
  }
  Stream stream = make_stream(Device::kCuda);
  Arena arena{"test", 1 << 20, Memory::kDevice};
  Staging staging;
  std::unique_ptr<Communicator> group;
  float rank = static_cast<float>(world->rank());
  int size = world->size();
};

// A step of many layers has more collectives than the group keeps notes of: the host then waits for the
// oldest.
TEST_F(NcclTest, ManyCollectivesMayBeUnderWay) {
  const Tensor t = put(DType::f32, {1});
  for (int i = 0; i < 1100; ++i) group->start_all_reduce("largest", t, ReduceOp::kMax).wait();
  EXPECT_THAT(read(t), ElementsAre(1));
}

// The host continues after it starts a collective: the device does nothing until the host waits for it.
TEST_F(NcclTest, CollectivesRunBesideTheHost) {
  const Tensor t = put(DType::f32, {rank});
  Pending sum = group->start_all_reduce("sum", t);
  EXPECT_THAT(simulated_nccl::take_record(), ElementsAre("all_reduce"));
  EXPECT_FALSE(sum.is_done());
  sum.wait();  // the stream waits, not the host
  EXPECT_THAT(simulated_nccl::take_record(), ElementsAre());
  synchronize(stream);
  EXPECT_THAT(simulated_nccl::take_record(), ElementsAre("end all_reduce"));
  EXPECT_EQ(read(t)[0], static_cast<float>(size * (size - 1) / 2));
}

// A gather that was started after a reduction of the gradients does not queue behind it, even if that never
// ends.
TEST_F(NcclTest, GathersPassReductions) {
  const Tensor grad = put(DType::f32, {rank, 1}),
               all = put(DType::f32, std::vector<float>(static_cast<size_t>(size)));
  const Tensor own = put(DType::f32, {rank});
  simulated_nccl::take_record();
  ::setenv("INGOT_SIMULATED_NCCL", "stall:1:0", 1);
  Pending reduction = group->start_all_reduce("gradients", grad);
  ::unsetenv("INGOT_SIMULATED_NCCL");
  Pending gather = group->start_all_gather_into("weights", all, own);
  gather.wait();
  synchronize(stream);
  EXPECT_THAT(simulated_nccl::take_record(), ElementsAre("all_reduce", "all_gather", "end all_gather"));
  EXPECT_EQ(read(all).back(), static_cast<float>(size - 1));
  EXPECT_FALSE(reduction.is_done());
}

// A receive that waits for its message holds up neither the host nor messages in the other direction, on
// which that message may depend.
TEST_F(NcclTest, MessagesOfARingPassAReceiveThatWaits) {
  const int next = (world->rank() + 1) % size, previous = (world->rank() + size - 1) % size;
  const std::unique_ptr<Communicator> down = device_ring(*world, 1, stream),
                                      up = device_ring(*world, -1, stream);
  const Tensor mine = put(DType::f32, {rank, 7}), got = put(DType::f32, {-1, -1}),
               back = put(DType::f32, {-1, -1});
  simulated_nccl::take_record();
  Pending first = down->start_receive("first", got, previous), later = up->start_receive("later", back, next);
  Pending sent = down->start_send("first", mine, next);
  EXPECT_FALSE(first.is_done());
  first.wait();
  Pending returned = up->start_send("later", got, previous);
  for (Pending* pending : {&sent, &later, &returned}) pending->wait();
  EXPECT_THAT(simulated_nccl::take_record(), ElementsAre("messages", "messages", "messages", "messages"));
  EXPECT_EQ(read(got)[0], static_cast<float>(previous));
  EXPECT_EQ(read(back)[0], rank);  // what was sent to the next rank comes back
  std::vector<int64_t> of_host = {world->rank()};
  down->all_reduce("sum", Tensor(of_host.data(), DType::i64, {1}));
  EXPECT_EQ(of_host[0], size * (size - 1) / 2);
}

// A thread of NCCL makes the second communicator, and the group does not use it before.
TEST_F(NcclTest, JobsOfNcclMayEndLate) {
  const Variable late("INGOT_SIMULATED_NCCL_LATE", "200");
  std::unique_ptr<Communicator> own = device_group(*world, stream);
  const std::unique_ptr<Communicator> ring = device_ring(*world, 1, stream);
  const Tensor t = put(DType::f32, {rank});
  own->all_reduce("sum", t);
  EXPECT_EQ(read(t)[0], static_cast<float>(size * (size - 1) / 2));
  nccl::finalize(std::move(own));
  world->barrier("all ranks have used it");
}

// The group's error is reported and no rank hangs even if an abort takes long.
TEST_F(NcclTest, AnAbortMayEndLate) {
  const Variable late("INGOT_SIMULATED_NCCL_LATE", "50");
  const Tensor t = put(DType::f32, {rank});
  ::setenv("INGOT_SIMULATED_NCCL", "fail:1:0", 1);
  EXPECT_THAT(error_of([&] {
                group->start_all_reduce("gradients 3", t).wait();
                synchronize(stream);
                group->all_reduce("next", t);
              }),
              HasSubstr("NCCL: group world: all_reduce 'gradients 3' (number 1): "));
  group.reset();
}

// Rank 1 fails before the other ranks begin the collective. They name it although nothing runs on them.
TEST_F(NcclTest, AnErrorNamesTheCollectiveThatItPrevents) {
  const Tensor t = put(DType::f32, {rank});
  ::setenv("INGOT_SIMULATED_NCCL", "fail:1:0", 1);
  const auto run = [&] {
    group->start_all_reduce("gradients 3", t).wait();
    synchronize(stream);
    group->all_reduce("next", t);
  };
  std::string text = rank == 1 ? error_of(run) : "";
  world->barrier("rank 1 has failed");
  std::this_thread::sleep_for(std::chrono::milliseconds(100));  // the watchers look every 5 ms
  if (rank != 1) text = error_of(run);
  EXPECT_THAT(text, HasSubstr("NCCL: group world: all_reduce 'gradients 3' (number 1): "));
}

TEST_F(NcclTest, ASplitThatFailsIsNamed) {
  ::setenv("INGOT_SIMULATED_NCCL", ("split:" + std::to_string(world->rank()) + ":0").c_str(), 1);
  EXPECT_THAT(error_of([&] { device_group(*world, stream); }),
              HasSubstr("NCCL: group world: ncclCommSplit: unhandled system error"));
}

TEST_F(NcclTest, SixteenBitSumsAreRoundedAfterEveryAddition) {
  const Tensor t = put(DType::bf16, {rank == 0 ? 256.0f : 1.0f});
  group->all_reduce("sum", t);
  EXPECT_EQ(read(t)[0], 256.0f);  // 257 is not a bf16: every addition of 1 is lost
}

TEST_F(NcclTest, SplitMakesGroupsOnTheDevice) {
  const std::unique_ptr<Communicator> half = group->split(world->rank() % 2, world->rank(), "half");
  const Tensor t = put(DType::f32, {rank});
  half->all_reduce("sum", t);
  float want = 0;
  for (int r = world->rank() % 2; r < size; r += 2) want += static_cast<float>(r);
  EXPECT_EQ(read(t)[0], want);
}

TEST_F(NcclTest, AnErrorNamesRankOperationAndNumberEverywhere) {
  const Tensor t = put(DType::f32, {rank});
  group->all_reduce("first", t);
  synchronize(stream);
  world->barrier("before");
  ::setenv("INGOT_SIMULATED_NCCL", "fail:1:0", 1);
  const std::string at_once = error_of([&] { group->start_all_reduce("gradients 3", t).wait(); });
  synchronize(stream);  // ends, because the group is aborted
  const std::string later = error_of([&] { group->all_reduce("next", t); });
  for (const std::string& text : {later, at_once == "no error" ? later : at_once}) {
    EXPECT_THAT(text, HasSubstr("NCCL: group world: all_reduce 'gradients 3' (number 2): "));
    EXPECT_THAT(text, HasSubstr(rank == 1 ? "unhandled system error" : "remote process exited"));
  }
}

// Collectives of both lanes become parts of a graph: its launches repeat them in order, each with what is in
// memory then.
TEST_F(NcclTest, AGraphRepeatsCollectives) {
  const Tensor t = put(DType::f32, {1}), all = put(DType::f32, std::vector<float>(static_cast<size_t>(size)));
  {
    const cuda::Graph graph(stream, [&] {
      Pending sum = group->start_all_reduce("sum", t);
      sum.wait();
      Pending gather = group->start_all_gather_into("all", all, t);
      EXPECT_FALSE(gather.is_done());
      gather.wait();
    });
    synchronize(stream);
    EXPECT_THAT(simulated_nccl::take_record(), ElementsAre("all_reduce", "all_gather"));
    EXPECT_EQ(read(t)[0], 1);  // nothing has run
    float want = 1;
    for (int launch = 0; launch < 3; ++launch) {
      graph.launch(stream);
      synchronize(stream);
      EXPECT_THAT(simulated_nccl::take_record(), ElementsAre("end all_reduce", "end all_gather"));
      want *= static_cast<float>(size);
      EXPECT_EQ(read(all).back(), want);
    }
    group->all_reduce("after", t);  // in order with the graph's
    EXPECT_EQ(read(t)[0], want * static_cast<float>(size));
  }
}

// A collective that the stream of the graph does not wait for: CUDA refuses the graph, and the group can
// still be used.
TEST_F(NcclTest, AGraphWaitsForItsCollectives) {
  const Tensor t = put(DType::f32, {rank});
  Pending forgotten;
  EXPECT_THAT(error_of([&] {
                const cuda::Graph graph(stream, [&] { forgotten = group->start_all_reduce("sum", t); });
              }),
              HasSubstr("capturing stream has unjoined work"));
  forgotten.wait();
  Pending before = group->start_all_reduce("before", t);
  EXPECT_THAT(error_of([&] { const cuda::Graph graph(stream, [&] { before.wait(); }); }),
              HasSubstr("dependency created on uncaptured work in another stream"));
  before.wait();
  EXPECT_EQ(read(t)[0], static_cast<float>(size * (size - 1) / 2));
}

TEST_F(NcclTest, AnErrorInAGraphNamesItsCollectives) {
  const Tensor t = put(DType::f32, {rank});
  const cuda::Graph graph(stream, [&] {
    group->all_reduce("gradients 3", t);
    group->all_reduce("gradients 4", t);
  });
  graph.launch(stream);
  synchronize(stream);
  world->barrier("before");
  ::setenv("INGOT_SIMULATED_NCCL", "fail:1:0", 1);
  graph.launch(stream);
  world->barrier("launched");
  synchronize(stream);  // ends, because the group is aborted
  EXPECT_THAT(error_of([&] { group->all_reduce("next", t); }),
              HasSubstr("NCCL: group world: a graph with 2 collectives 'all_reduce gradients 3 to all_reduce "
                        "gradients 4' (number 2): "));
}

// An exception on one rank: the others will never join what it has started.
TEST_F(NcclTest, TeardownWhileAnExceptionPassesDoesNotHang) {
  const auto begin = std::chrono::steady_clock::now();
  const Tensor t = put(DType::f32, {rank});
  EXPECT_THAT(error_of([&] {
                const std::unique_ptr<Communicator> own = device_group(*world, stream);
                if (rank == 0) own->start_all_reduce("alone", t).wait();
                fail(ErrorKind::kNumerics, "the loss is not finite");
              }),
              HasSubstr("the loss is not finite"));
  synchronize(stream);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(9));  // less than finalize waits
}

}  // namespace
}  // namespace ingot
