// Shards (FSDP, HSDP) on simulated devices, through the host and over a simulated NCCL: losses are those of
// one rank on the CPU.
#include <gmock/gmock.h>

#include <filesystem>

#include "ingot/checkpoint/checkpoint.h"
#include "ingot/data/tokenizer/tokenizer.h"
#include "tests/parallel/mpi/hand_over.h"
#include "tests/simulated_cuda/mpi/layout_cases.h"
#include "tests/simulated_cuda/nccl/simulated_nccl.h"

namespace ingot {
namespace {

RunConfig tiny(const RunConfig& c) { return small(c, 2); }

struct DeviceShards {
  const char* name;
  RunConfig config;
  int fsdp = 0;  // 0: all ranks
};
void PrintTo(const DeviceShards& c, std::ostream* out) { *out << c.name; }

RunConfig with_payload(RunConfig c, DType payload) {
  c.parallel.payload = payload;
  return c;
}
RunConfig with_feedback(RunConfig c) {
  c.parallel.has_error_feedback = true;
  return c;
}
RunConfig with_f32_head(RunConfig c) {
  c.head.precision = HeadPrecision::kF32;
  return c;
}
RunConfig in_fp8(RunConfig c) {
  c.precision.compute = DType::bf16;
  c.precision.fp8.recipe = Fp8Recipe::kTensorwise;
  c.model.context = 16;
  return c;
}

class SimulatedShards : public ::testing::TestWithParam<DeviceShards> {
 protected:
  static RunConfig sharded(const RunConfig& c, int fsdp) {
    ParallelConfig layout = c.parallel;
    layout.fsdp = fsdp == 0 ? world->size() : std::min(fsdp, world->size());
    layout.dp = world->size() / layout.fsdp;
    return on_devices(c, layout);
  }
};

TEST_P(SimulatedShards, HaveTheLossesOfOneRank) {
  expect_one_cpu_rank(sharded(GetParam().config, GetParam().fsdp));
}

INSTANTIATE_TEST_SUITE_P(
    Forms, SimulatedShards,
    ::testing::Values(DeviceShards{"llama", tiny(llama())}, DeviceShards{"gpt2", tiny(gpt2())},
                      DeviceShards{"adamw8bit", tiny(with_8bit(llama()))},
                      DeviceShards{"lion", tiny(with_rule(gpt2(), "lion"))},
                      DeviceShards{"adafactor", tiny(with_rule(llama(), "adafactor"))},
                      DeviceShards{"adafactor_of_replicas", tiny(with_rule(gpt2(), "adafactor")), 2},
                      DeviceShards{"bf16", in(tiny(llama()), DType::bf16)},
                      DeviceShards{"stochastic", without_masters(tiny(gpt2()))},
                      DeviceShards{"stochastic_replicas_of_shards", without_masters(tiny(llama())), 2},
                      DeviceShards{"f32_head", with_f32_head(in(tiny(gpt2()), DType::bf16))},
                      DeviceShards{"f16", in(tiny(gpt2()), DType::f16)},
                      DeviceShards{"fp8", in_fp8(tiny(llama()))},
                      DeviceShards{"payload", with_payload(in(tiny(llama()), DType::bf16), DType::bf16)},
                      DeviceShards{"f16_payload", with_feedback(with_payload(tiny(llama()), DType::f16))},
                      DeviceShards{"payload_of_replicas",
                                   with_feedback(with_payload(tiny(gpt2()), DType::bf16)), 2},
                      DeviceShards{"kept", keeping_units(tiny(llama()))},
                      DeviceShards{"adapters", with_adapters(tiny(llama()), {"blocks.1.*"})},
                      DeviceShards{"kept_adapters", keeping_units(with_adapters(tiny(gpt2())))},
                      DeviceShards{"fp8_adapters", with_adapters(in_fp8(tiny(llama())))},
                      DeviceShards{"replicas_of_shards", tiny(llama()), 2}),
    [](const auto& info) { return std::string(info.param.name); });

// A run continues from a checkpoint of shards on devices, both on one CPU and on the devices.
TEST_F(SimulatedShards, CheckpointsPassBetweenDevicesAndTheCpu) {
  const RunConfig c = tiny(llama());
  Training alone(c);
  const std::vector<double> want = alone.losses(6);
  const SharedFolder folder;
  const RunConfig there = sharded(c, 0);
  fs::path path;
  {
    Mesh mesh = Mesh::make(*world, mesh_shape(there.parallel));
    Training together(there, mesh);
    together.losses(2);
    path = save(together, folder.path, 2);
  }
  Training middle(c);
  resume(middle, path);
  std::vector<double> got = middle.losses(2);
  for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], want[i + 2], 1e-5 * want[i + 2]) << i;
  {
    Mesh mesh = Mesh::make(*world, mesh_shape(there.parallel));
    Training together(there, mesh);
    resume(together, path);
    got = together.losses(4);
    for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], want[i + 2], 1e-5 * want[i + 2]) << i;
  }
}

// Units are gathered before they are needed: two gathers are in progress at the same time.
TEST_F(SimulatedShards, TheNextUnitIsUnderWayWhileOneComputes) {
  const char* gpus = std::getenv("INGOT_SIMULATED_GPUS");
  if (!gpus || std::string(gpus) != "own" || world->size() == 1) GTEST_SKIP() << "the ranks share a GPU";
  const RunConfig there = sharded(tiny(llama()), 0);
  Mesh mesh = Mesh::make(*world, mesh_shape(there.parallel));
  Training together(there, mesh);
  together.losses(1);
  simulated_nccl::take_record();
  together.losses(1);
  const std::vector<std::string> record = simulated_nccl::take_record();
  int under_way = 0, most = 0;
  for (const std::string& what : record) {
    if (what == "all_gather") most = std::max(most, ++under_way);
    if (what == "end all_gather") --under_way;
  }
  EXPECT_GE(most, 2);
  EXPECT_EQ(under_way, 0);
}

}  // namespace
}  // namespace ingot
