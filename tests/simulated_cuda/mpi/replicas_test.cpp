// Several ranks with one simulated CUDA device each: collectives staged through the
// host, and replicas of a model.
#include <unistd.h>

#include <filesystem>

#include "ingot/checkpoint/checkpoint.h"
#include "ingot/comm/device_group.h"
#include "ingot/core/copy.h"
#include "ingot/core/cuda/cuda_graph.h"
#include "ingot/core/cuda/cuda_launch.h"
#include "ingot/core/staging.h"
#include "ingot/data/tokenizer/tokenizer.h"
#include "tests/parallel/mpi/hand_over.h"
#include "tests/parallel/mpi/ranks_fixture.h"
#include "tests/simulated_cuda/mpi/layout_cases.h"
#include "tests/simulated_cuda/mpi/small_run.h"
#include "tests/simulated_cuda/nccl/simulated_nccl.h"

namespace ingot {
namespace {

// Holds f32 numbers on the device that depend on `salt`, which is usually the rank.
class OnDevice {
 public:
  OnDevice(int64_t n, Stream& stream, int salt)
      : arena_("test", static_cast<size_t>(n) * sizeof(float) + 256, Memory::kDevice),
        t_(arena_.alloc(DType::f32, {n})),
        stream_(stream) {
    Staging staging;
    const Tensor host = staging.room(t_);
    for (int64_t i = 0; i < n; ++i) host.as<float>()[i] = static_cast<float>(salt * 100 + i);
    staging.write(t_, stream);
  }
  const Tensor& tensor() const { return t_; }
  std::vector<float> read() const {
    Staging staging;
    const Tensor host = staging.read(t_, stream_);
    return {host.as<float>(), host.as<float>() + host.elements()};
  }

 private:
  Arena arena_;
  Tensor t_;
  Stream& stream_;
};

class StagedGroup : public ::testing::Test {
 protected:
  Stream stream = make_stream(Device::kCuda);
  std::unique_ptr<Communicator> group = device_group(*world, stream);
  int rank = world->rank(), size = world->size();
  // The sum over the ranks of 100 * salt, where the salt is the rank.
  float salts = static_cast<float>(size * (size - 1) / 2 * 100);
};

TEST_F(StagedGroup, CollectivesEqualThoseOfTheHost) {
  const OnDevice sum(5, stream, rank), top(3, stream, rank), mine(2, stream, rank);
  const OnDevice all(2 * size, stream, -1), part(2, stream, -1), wide(2 * size, stream, rank);
  const OnDevice told(4, stream, rank);
  Pending first = group->start_all_reduce("sum", sum.tensor());
  Pending second = group->start_all_reduce("top", top.tensor(), ReduceOp::kMax);
  first.wait();
  second.wait();
  group->all_gather_into("all", all.tensor(), mine.tensor());
  group->reduce_scatter("part", part.tensor(), wide.tensor());
  const OnDevice given(size, stream, rank), taken(size, stream, -1);
  group->start_all_to_all("exchange", taken.tensor(), given.tensor()).wait();
  group->broadcast("told", told.tensor(), size - 1);
  group->barrier("between");
  const auto expect = [](const OnDevice& got, const std::function<float(int)>& want) {
    const std::vector<float> values = got.read();
    for (int i = 0; i < std::ssize(values); ++i) EXPECT_EQ(values[static_cast<size_t>(i)], want(i)) << i;
  };
  const auto summed = [&](int i) { return salts + static_cast<float>(size * i); };
  const auto of_rank = [](int r, int i) { return static_cast<float>(r * 100 + i); };
  expect(sum, summed);
  expect(top, [&](int i) { return of_rank(size - 1, i); });
  expect(all, [&](int i) { return of_rank(i / 2, i % 2); });
  expect(part, [&](int i) { return summed(2 * rank + i); });
  expect(taken, [&](int i) { return of_rank(i, rank); });
  expect(told, [&](int i) { return of_rank(size - 1, i); });
  expect(mine, [&](int i) { return of_rank(rank, i); });
  expect(wide, [&](int i) { return of_rank(rank, i); });
  expect(given, [&](int i) { return of_rank(rank, i); });
}

TEST_F(StagedGroup, CarriesMessagesAndTensorsOfTheHost) {
  const OnDevice mine(3, stream, rank), got(3, stream, -1);
  std::vector<int64_t> count = {rank + 1};
  const int next = (rank + 1) % size, previous = (rank + size - 1) % size;
  if (size > 1) {
    Pending received = group->start_receive("ring", got.tensor(), previous);
    group->send("ring", mine.tensor(), next);
    received.wait();
    EXPECT_EQ(got.read()[1], static_cast<float>(previous * 100 + 1));
  }
  group->all_reduce("count", Tensor(count.data(), DType::i64, {1}));
  EXPECT_EQ(count[0], size * (size + 1) / 2);
}

// The all-reduce starts before a kernel has written its tensor.
TEST_F(StagedGroup, WaitsForPendingWorkOfTheStream) {
  const OnDevice from(4, stream, rank), to(4, stream, -1);
  copy(to.tensor(), from.tensor(), stream);
  group->all_reduce("late", to.tensor());
  EXPECT_EQ(to.read()[0], salts);
}

TEST_F(StagedGroup, SplitsAsTheHostDoes) {
  const std::unique_ptr<Communicator> half = group->split(rank % 2, rank, "half");
  const OnDevice one(1, stream, rank);
  half->all_reduce("one", one.tensor());
  float want = 0;
  for (int r = rank % 2; r < size; r += 2) want += static_cast<float>(r * 100);
  EXPECT_EQ(one.read()[0], want);
}

TEST(SimulatedReplicas, HaveTheLossesOfOneRank) {
  ParallelConfig layout = replicas();
  expect_one_cpu_rank(on_devices(small(llama()), layout));
  expect_one_cpu_rank(on_devices(small(gpt2()), layout));
  layout.bucket_mb = 1;
  layout.payload = DType::bf16;
  expect_one_cpu_rank(on_devices(small(llama()), layout));
  layout.has_error_feedback = true;
  for (const DType payload : {DType::bf16, DType::f16}) {
    layout.payload = payload;
    expect_one_cpu_rank(on_devices(small(llama()), layout));
  }
}

// All ranks save the checkpoint from their devices, and a single rank on the CPU continues from it.
TEST(SimulatedReplicas, CheckpointsOfReplicasLoadOnOneDevice) {
  RunConfig c = small(llama());
  Training alone(c);
  const std::vector<double> want = alone.losses(4);
  const SharedFolder folder;
  fs::path path;
  {
    RunConfig there = c;
    there.train.device = Device::kCuda;
    there.parallel.dp = world->size();
    Mesh mesh = Mesh::make(*world, mesh_shape(there.parallel));
    Training together(there, mesh);
    together.losses(2);
    path = save(together, folder.path, 2);
  }
  Training after(c);
  resume(after, path);
  const std::vector<double> got = after.losses(2);
  for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], want[i + 2], 1e-5 * want[i + 2]) << i;
}

// Runs a collective of two ranks while four links of rank 0 wait for messages that rank 1 sends and receives
// afterwards.
void sum_beside_waiting_links() {
  Stream stream = make_stream(Device::kCuda), empty = make_stream(Device::kCuda);
  const std::unique_ptr<Communicator> group = device_group(*world, stream),
                                      down = device_ring(*world, 1, stream),
                                      up = device_ring(*world, -1, stream);
  const OnDevice t(4, stream, world->rank()), out(4, stream, 1), in(4, stream, 1), back(4, stream, 1);
  const int other = 1 - world->rank();
  std::vector<Pending> messages;
  const auto exchange = [&] {
    messages.push_back(down->start_receive("activations", in.tensor(), other));
    messages.push_back(up->start_receive("gradients", back.tensor(), other));
    messages.push_back(down->start_send("activations", out.tensor(), other));
    messages.push_back(up->start_send("gradients", out.tensor(), other));
  };
  if (world->rank() == 0) exchange();
  simulated_nccl::let_device_run(cuda::queue_of(empty));
  group->start_all_reduce("sums of tensors", t.tensor()).wait();
  if (world->rank() == 1) exchange();
  for (Pending& message : messages) message.wait();
  EXPECT_EQ(t.read()[1], 102);
}

TEST(WaitingLinks, LeaveMultiprocessorsForCollectives) {
  const char* gpus = std::getenv("INGOT_SIMULATED_GPUS");
  if (!gpus || std::string(gpus) != "own" || world->size() != 2) GTEST_SKIP() << "not two ranks with NCCL";
  sum_beside_waiting_links();
}

}  // namespace
}  // namespace ingot

// With --stall or --stall-graph, rank 1 never joins a collective on the device, which is in a graph or not.
// With --crowd, links have the CTAs that NCCL would take without a limit, and a collective finds no
// multiprocessors. The watchdog names it and ends the job.
int main(int argc, char** argv) {
  using namespace ingot;
  const std::string mode = argc < 2 ? "" : argv[1];
  if (mode != "--stall" && mode != "--stall-graph" && mode != "--crowd") return run_on_ranks(argc, argv);
  MpiJob job({.timeout_s = 1.0, .verifies = true});
  world = &job.world();
  if (mode == "--crowd") {
    ::setenv("INGOT_SIMULATED_CTAS", "32", 1);
    sum_beside_waiting_links();
  }
  ::setenv("INGOT_SIMULATED_NCCL", "stall:1:0", 1);
  Stream stream = make_stream(Device::kCuda);
  const std::unique_ptr<Communicator> group = device_group(*world, stream);
  const OnDevice t(4, stream, world->rank());
  const auto reduce = [&] { group->start_all_reduce("gradients 3", t.tensor()).wait(); };
  if (mode == "--stall") {
    reduce();
    synchronize(stream);
  } else {
    const cuda::Graph graph(stream, reduce);
    graph.launch(stream);
    synchronize(stream);
  }
  return 0;
}
