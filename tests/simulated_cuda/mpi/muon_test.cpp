// Tests of distributed Muon on simulated devices, through the host and over a simulated NCCL: the losses are
// those of one rank on the CPU, and the messages of a round run concurrently with the products of the next.
#include <gmock/gmock.h>

#include <algorithm>
#include <filesystem>

#include "ingot/checkpoint/checkpoint.h"
#include "ingot/comm/device_group.h"
#include "ingot/core/copy.h"
#include "ingot/core/cuda/cuda_launch.h"
#include "ingot/data/tokenizer/tokenizer.h"
#include "ingot/parallel/distributed_muon.h"
#include "tests/parallel/mpi/hand_over.h"
#include "tests/simulated_cuda/mpi/layout_cases.h"
#include "tests/simulated_cuda/nccl/simulated_nccl.h"

namespace ingot {
namespace {

using ::testing::Contains;
using ::testing::Each;
using ::testing::StartsWith;

struct DeviceMuon {
  const char* name;
  RunConfig config;
  bool is_everywhere = false;  // true for every layout, false for products of axes only
};
void PrintTo(const DeviceMuon& c, std::ostream* out) { *out << c.name; }

RunConfig muon_run(const RunConfig& c, DType dtype, int64_t layers = 1) {
  RunConfig muon = with_muon(small(c, layers), dtype);
  muon.precision.compute = dtype;
  muon.parallel.muon_payload = dtype;
  muon.model.heads = muon.model.kv_heads = 4;  // for four tensor-parallel ranks
  return muon;
}

RunConfig with_every_option(const RunConfig& c) {
  RunConfig muon = muon_run(c, DType::f32);
  muon.optimizer.groups[0].rule.options.set(&Muon::Options::normuon, true);
  muon.optimizer.groups[0].rule.options.set(&Muon::Options::cautious_decay, true);
  muon.optimizer.ema = 0.9;
  return muon;
}

RunConfig fused_in_bf16(const RunConfig& c) {
  RunConfig muon = muon_run(c, DType::bf16);
  muon.optimizer.groups[0].rule.options.set(&Muon::Options::split_fused, false);
  return muon;
}

class SimulatedMuon : public ::testing::TestWithParam<DeviceMuon> {
 protected:
  static RunConfig on_devices(const RunConfig& c, ParallelConfig layout) {
    layout.muon_payload = c.parallel.muon_payload;
    return ingot::on_devices(c, layout);
  }
  // Every axis alone and, on four ranks, their products.
  static std::vector<ParallelConfig> layouts() {
    if (world->size() == 1) return {replicas()};
    std::vector<ParallelConfig> all{replicas(), shards(), sharing(4), stages(2, PipelineKind::kOneFOneB)};
    if (world->size() == 2) return all;
    for (const ParallelConfig& product : products()) all.push_back(product);
    all.insert(all.end(), {sharing(2), stages(2, PipelineKind::kGpipe, 1, 2)});
    return all;
  }
  static std::vector<ParallelConfig> products() {
    ParallelConfig stages_of_shards = stages(2, PipelineKind::kOneFOneB);
    std::swap(stages_of_shards.dp, stages_of_shards.fsdp);
    return {replicas_of_shards(), sharing_of_shards(), stages_of_shards};
  }
};

TEST_P(SimulatedMuon, HasTheLossesOfOneRank) {
  const auto& [name, config, is_everywhere] = GetParam();
  for (const ParallelConfig& layout : is_everywhere ? layouts() : products())
    expect_one_cpu_rank(on_devices(config, layout));
}

INSTANTIATE_TEST_SUITE_P(Forms, SimulatedMuon,
                         ::testing::Values(DeviceMuon{"llama", muon_run(llama(), DType::f32, 2), true},
                                           DeviceMuon{"every_option", with_every_option(gpt2())},
                                           DeviceMuon{"fused_in_bf16", fused_in_bf16(llama())}),
                         [](const auto& info) { return std::string(info.param.name); });

// Only the ranks of a matrix's owner store its momentum: together, all ranks store it once.
TEST_F(SimulatedMuon, AllRanksTogetherStoreTheMomentumOnce) {
  const RunConfig config = muon_run(llama(), DType::f32);
  Training alone(config);
  for (const ParallelConfig& layout : layouts()) {
    const RunConfig there = on_devices(config, layout);
    Mesh mesh = Mesh::make(*world, mesh_shape(there.parallel));
    Training together(there, mesh);
    const auto elements = [](Trainer& trainer) {
      int64_t sum = 0;
      for (const Optimizer::State& state : trainer.state().optimizer.states())
        if (state.name.starts_with("momentum.")) sum += state.tensor.elements();
      return static_cast<double>(sum);
    };
    EXPECT_EQ(world->sum(elements(together.trainer)), elements(alone.trainer)) << layout.to_string();
  }
}

// A checkpoint of any layout on devices continues on the CPU and in any other layout.
TEST_F(SimulatedMuon, CheckpointsPassBetweenLayoutsAndTheCpu) {
  const RunConfig config = with_every_option(llama());
  Training alone(config);
  const std::vector<double> want = alone.losses(6);
  const SharedFolder folder;
  fs::path path;
  size_t step = 0;
  const auto go_on = [&](Training& training) {
    if (!path.empty()) resume(training, path);
    for (const double loss : training.losses(2)) {
      EXPECT_NEAR(loss, want[step], 1e-5 * want[step]) << step;
      ++step;
    }
  };
  for (const ParallelConfig& layout : {shards(), sharing(4)}) {
    const RunConfig there = on_devices(config, layout);
    Mesh mesh = Mesh::make(*world, mesh_shape(there.parallel));
    Training together(there, mesh);
    go_on(together);
    path = save(together, folder.path, static_cast<int64_t>(step));
  }
  Training after(config);
  go_on(after);
}

// ---- order of products and messages on the device ----

// Each compute adds "compute" to the record when the device gets there.
class DeviceWork final : public MatrixWork {
 public:
  explicit DeviceWork(Stream& stream) : stream_(stream) {}
  void prepare(size_t /*task*/, const Tensor& u) override { fill_zero(u, stream_); }
  void compute(size_t /*task*/, const Tensor& /*u*/) override { note("compute"); }
  void apply(size_t /*task*/, const Tensor& /*direction*/) override { note("apply"); }

 private:
  void note(const char* what) { simulated_nccl::record_in(cuda::queue_of(stream_), what); }
  Stream& stream_;
};

// Order holds what update.run() does with 16 equal matrices: the calls of the host, and what then runs on the
// device.
struct Order {
  std::vector<std::string> calls, runs;
};

Order order_of(int sharing) {
  Stream stream = make_stream(Device::kCuda);
  const std::unique_ptr<Communicator> all = device_group(*world, stream);
  const std::unique_ptr<Communicator> weights = all->split(world->rank() / sharing, world->rank(), "weights"),
                                      replicas =
                                          all->split(world->rank() % sharing, world->rank(), "replicas");
  DistributedMuon update(*weights, *replicas, DType::bf16);
  std::vector<MatrixTask> tasks;
  const ParamSpec spec{.name = "w", .shape = {32, 32}};
  const Range own = split_range(1024, sharing, weights->rank());
  for (int t = 0; t < 16; ++t)
    tasks.push_back(
        {.name = "w", .shape = {32, 32}, .rects = rects_of(spec, own.begin, own.end), .flops = 1});
  update.plan(tasks);
  Arena scratch("scratch", update.scratch_bytes(Memory::kDevice), Memory::kDevice);
  simulated_nccl::take_record();
  DeviceWork work(stream);
  update.run(work, scratch, stream);
  Order order{.calls = simulated_nccl::take_record(), .runs = {}};
  synchronize(stream);
  order.runs = simulated_nccl::take_record();
  return order;
}

// Returns the place of the k-th `what`, from 0 on.
std::ptrdiff_t place_of_kth(const std::vector<std::string>& record, const std::string& what, int k) {
  for (auto i = record.begin(); i != record.end(); ++i)
    if (*i == what && k-- == 0) return i - record.begin();
  ADD_FAILURE() << what << " is not there";
  return -1;
}

// The host waits for nothing, and the device waits for the messages of round k when it has the products of
// round k + 1 behind it.
void expect_overlap(const Order& order, const std::string& call) {
  EXPECT_THAT(order.calls, Each(call)) << "the host has waited";
  const int rounds = 16 / world->size();
  EXPECT_THAT(order.runs, Contains("compute").Times(rounds));
  EXPECT_THAT(order.runs, Contains("apply").Times(16));
  for (int k = 0; k + 1 < rounds; ++k)
    EXPECT_LT(place_of_kth(order.runs, "compute", k + 1), place_of_kth(order.runs, "end " + call, k)) << k;
}

TEST_F(SimulatedMuon, ReplicasGatherWhileTheNextRoundComputes) {
  const char* gpus = std::getenv("INGOT_SIMULATED_GPUS");
  if (!gpus || std::string(gpus) != "own" || world->size() == 1) GTEST_SKIP() << "the ranks share a GPU";
  expect_overlap(order_of(1), "all_gather");
}

// Two messages per round: the shards of the next matrix come in while this one computes, and directions
// return.
TEST_F(SimulatedMuon, ShardsTravelWhileARoundComputes) {
  const char* gpus = std::getenv("INGOT_SIMULATED_GPUS");
  if (!gpus || std::string(gpus) != "own" || world->size() == 1) GTEST_SKIP() << "the ranks share a GPU";
  const Order order = order_of(world->size());
  EXPECT_THAT(order.calls, Each(StartsWith("messages"))) << "the host has waited";
  const int rounds = 16 / world->size();
  EXPECT_THAT(order.calls, Contains("messages").Times(2 * rounds));
  // Messages run in the order collect 0, collect 1, return 0, collect 2, return 1, ...: return k is the one
  // before collect k + 2.
  for (int k = 0; k + 2 < rounds; ++k)
    EXPECT_LT(place_of_kth(order.runs, "compute", k + 1), place_of_kth(order.runs, "end messages", 2 * k + 2))
        << k;
}

}  // namespace
}  // namespace ingot
