// Every layout with every kind of model, rule and precision that layouts treat differently, on simulated
// devices, compared with one rank on the CPU.
#include "tests/simulated_cuda/mpi/layout_cases.h"

namespace ingot {
namespace {

enum class MatrixRule { kAdamW, kMuon, kEightBit };
constexpr MatrixRule kRules[] = {MatrixRule::kAdamW, MatrixRule::kMuon, MatrixRule::kEightBit};
enum class Numbers { kF32, kBf16, kFp8 };
constexpr Numbers kNumbers[] = {Numbers::kF32, Numbers::kBf16, Numbers::kFp8};

// Four or, for a layout with more stages, eight units; heads for four tensor-parallel ranks, pairs of which
// share keys and values in the LLaMA; eight micro-batches, enough for all ranks and schedules; and dims of
// which every shard is a multiple of 16.
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
  c.head.precision = HeadPrecision::kFp8;
  return c;
}

void expect_one_cpu_rank(const ParallelConfig& layout, bool is_llama, MatrixRule rule, Numbers numbers) {
  SCOPED_TRACE(fmt::format("{}, rule {}, numbers {}", is_llama ? "LLaMA" : "GPT-2", static_cast<int>(rule),
                           static_cast<int>(numbers)));
  RunConfig config = on_devices(
      in_numbers(with_rule_of_matrix(device_model(is_llama, layout), rule, numbers), numbers), layout);
  config.parallel.muon_payload = numbers == Numbers::kF32 ? DType::f32 : DType::bf16;
  expect_one_cpu_rank(config);
}

struct MatrixLayout {
  const char* name;
  ParallelConfig (*layout)();
  int least_ranks = 2;
};
void PrintTo(const MatrixLayout& layout, std::ostream* out) { *out << layout.name; }

ParallelConfig swapped(ParallelConfig c) {
  std::swap(c.dp, c.fsdp);
  return c;
}
ParallelConfig three_axes() { return stages(2, PipelineKind::kInterleaved, 2, 2); }

const MatrixLayout kLayouts[] = {
    {"replicas", replicas},
    {"shards", [] { return shards(); }},
    {"replicas_of_shards", replicas_of_shards, 4},
    {"tensors", [] { return sharing(4, false); }},
    {"tensors_of_tokens", [] { return sharing(4, true); }},
    {"tensors_of_shards", sharing_of_shards, 4},
    {"gpipe", [] { return stages(8, PipelineKind::kGpipe); }},
    {"one_f_one_b", [] { return stages(8, PipelineKind::kOneFOneB); }},
    {"interleaved", [] { return stages(std::min(4, world->size()), PipelineKind::kInterleaved, 2); }},
    {"stages_of_tensors", [] { return stages(world->size() / 2, PipelineKind::kOneFOneB, 1, 2); }, 4},
    {"stages_of_tensors_of_replicas", three_axes, 8},
    {"stages_of_tensors_of_shards", [] { return swapped(three_axes()); }, 8}};

class DeviceMatrix : public ::testing::TestWithParam<MatrixLayout> {
 protected:
  void SetUp() override {
    if (world->size() < GetParam().least_ranks) GTEST_SKIP() << "has " << GetParam().least_ranks << " ranks";
  }
};
INSTANTIATE_TEST_SUITE_P(Layouts, DeviceMatrix, ::testing::ValuesIn(kLayouts),
                         [](const auto& info) { return std::string(info.param.name); });

// Each layout with every rule, every precision and both models; each two of them meet in some layout.
TEST_P(DeviceMatrix, TrainsAsOneRank) {
  const auto k = static_cast<size_t>(
      std::ranges::find(kLayouts, std::string(GetParam().name), &MatrixLayout::name) - kLayouts);
  for (size_t i = 0; i < 3; ++i)
    expect_one_cpu_rank(GetParam().layout(), (i + k) % 2 == 0, kRules[i], kNumbers[(i + k) % 3]);
}

// It takes minutes, so it is one of the slow tests.
TEST_P(DeviceMatrix, SlowlyTrainsAsOneRankInEveryCombination) {
  for (const bool is_llama : {false, true})
    for (const MatrixRule rule : kRules)
      for (const Numbers numbers : kNumbers)
        expect_one_cpu_rank(GetParam().layout(), is_llama, rule, numbers);
}

}  // namespace
}  // namespace ingot
