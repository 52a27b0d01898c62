// Every layout with every kind of model, rule and precision that layouts treat differently, on simulated devices: the first
// losses are those of one rank on the CPU. It takes minutes, so it is one of the slow tests.
#include <map>
#include <string>
#include <vector>

#include "tests/parallel/mpi/one_rank_curve.h"
#include "tests/simulated_cuda/mpi/layout_cases.h"

namespace ingot {
namespace {

constexpr int kFirst = 3;  // steps

enum class MatrixRule { kAdamW, kMuon, kEightBit };
enum class Numbers { kF32, kBf16, kFp8 };

// Four or, for a layout with more stages, eight units; heads for four tensor-parallel ranks, pairs of which share keys and
// values in the LLaMA; eight micro-batches, enough for all ranks and schedules; and dims of which every shard is a
// multiple of 16.
RunConfig device_model(bool is_llama, const ParallelConfig& layout) {
  RunConfig c = small(is_llama ? llama() : gpt2(), layout.pp * layout.chunks > 4 ? 6 : 2);
  c.model.heads = 4;
  c.model.kv_heads = is_llama ? 2 : 4;
  c.model.width = 64;
  c.model.ffn = 128;
  c.model.context = 16;
  c.train.batch_size = 1;
  c.train.grad_accum = 8;
  return c;
}

RunConfig with_rule_of_matrix(const RunConfig& c, MatrixRule rule, Numbers numbers) {
  if (rule == MatrixRule::kEightBit) return with_8bit(c);
  return rule == MatrixRule::kMuon ? with_muon(c, numbers == Numbers::kF32 ? DType::f32 : DType::bf16) : c;
}

RunConfig in_numbers(RunConfig c, Numbers numbers) {
  if (numbers == Numbers::kF32) return c;
  c.precision.compute = DType::bf16;
  if (numbers == Numbers::kBf16) return c;
  c.precision.fp8.recipe = Fp8Recipe::kTensorwise;
  c.head.precision = HeadDtype::kFp8;
  return c;
}

// A device sums in another order than the CPU. In f32 that is all; 8-bit states round its effect to the next code. bf16
// and FP8 round every product differently, as on one rank.
double tolerance_of(MatrixRule rule, Numbers numbers) {
  if (numbers == Numbers::kF32) return rule == MatrixRule::kEightBit ? 1e-4 : 1e-5;
  return numbers == Numbers::kBf16 ? kBf16 : 2 * kBf16;
}

const std::vector<double>& losses_of_one_rank(RunConfig config) {
  static std::map<std::string, std::vector<double>> known;
  config.parallel = {};
  std::vector<double>& losses = known[config_toml(config, ConfigDocs::kNone)];
  if (losses.empty()) losses = Training(config).losses(kFirst);
  return losses;
}

void expect_losses_of_one_rank(const ParallelConfig& layout) {
  for (const bool is_llama : {false, true})
    for (const MatrixRule rule : {MatrixRule::kAdamW, MatrixRule::kMuon, MatrixRule::kEightBit})
      for (const Numbers numbers : {Numbers::kF32, Numbers::kBf16, Numbers::kFp8}) {
        RunConfig config =
            in_numbers(with_rule_of_matrix(device_model(is_llama, layout), rule, numbers), numbers);
        const std::vector<double>& want = losses_of_one_rank(config);
        config.parallel = layout;
        config.parallel.muon_payload = numbers == Numbers::kF32 ? DType::f32 : DType::bf16;
        config.train.device = Device::kCuda;
        SCOPED_TRACE(fmt::format("{}, rule {}, numbers {}, {}", is_llama ? "LLaMA" : "GPT-2",
                                 static_cast<int>(rule), static_cast<int>(numbers), layout.to_string()));
        Mesh mesh = Mesh::make(*world, mesh_shape(layout));
        Training together(config, mesh);
        expect_planned_arenas(together, config);
        const std::vector<double> got = together.losses(kFirst);
        for (size_t i = 0; i < want.size(); ++i)
          EXPECT_NEAR(got[i], want[i], tolerance_of(rule, numbers) * want[i]) << "step " << i;
      }
}

TEST(DeviceMatrix, Replicas) { expect_losses_of_one_rank(replicas()); }

TEST(DeviceMatrix, Shards) { expect_losses_of_one_rank(shards()); }

TEST(DeviceMatrix, ReplicasOfShards) {
  if (world->size() >= 4) expect_losses_of_one_rank(replicas_of_shards());
}

TEST(DeviceMatrix, Tensors) {
  expect_losses_of_one_rank(sharing(4, false));
  expect_losses_of_one_rank(sharing(4, true));
}

TEST(DeviceMatrix, TensorsOfShards) {
  if (world->size() >= 4) expect_losses_of_one_rank(sharing_of_shards());
}

TEST(DeviceMatrix, Pipelines) {
  expect_losses_of_one_rank(stages(8, PipelineKind::kGpipe));
  expect_losses_of_one_rank(stages(8, PipelineKind::kOneFOneB));
  expect_losses_of_one_rank(stages(std::min(4, world->size()), PipelineKind::kInterleaved, 2));
}

TEST(DeviceMatrix, PipelinesOfTensors) {
  if (world->size() >= 4) expect_losses_of_one_rank(stages(world->size() / 2, PipelineKind::kOneFOneB, 1, 2));
}

// Tensor parallelism, stages and, on eight ranks, replicas or shards at the same time.
TEST(DeviceMatrix, AllAxes) {
  if (world->size() < 8) return;
  ParallelConfig layout = stages(2, PipelineKind::kInterleaved, 2, 2);
  expect_losses_of_one_rank(layout);
  std::swap(layout.dp, layout.fsdp);
  expect_losses_of_one_rank(layout);
}

}  // namespace
}  // namespace ingot
