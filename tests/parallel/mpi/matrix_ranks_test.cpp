// Tests every layout with every kind of model, rule and precision that layouts treat differently. The
// initial weights have the bits of one rank, losses and samples are those of one rank, and all ranks end
// with the same weights.
#include <vector>

#include "tests/parallel/mpi/one_rank_curve.h"

namespace ingot {
namespace {

// The model has enough units for four stages, or for eight if the layout needs them, and heads for four
// tensor-parallel ranks. In the LLaMA, pairs of heads share keys and values.
RunConfig matrix_model(bool is_llama, const ParallelConfig& layout) {
  RunConfig c = is_llama ? llama() : gpt2();
  c.model.layers = 2;
  c = layout.pp * layout.chunks > 4 ? for_stages(c) : with_many_heads(c);
  c.model.is_tied = !is_llama;
  if (is_llama) c.model.kv_heads = 4;
  return c;
}

enum class Rule { kAdamW, kMuon, kEightBit };

// Tests one layout. f32_tolerance is the relative tolerance of its losses in f32 and the least one in bf16.
void expect_all(const ParallelConfig& layout, double f32_tolerance = kF32) {
  for (const bool is_llama : {false, true})
    for (const Rule rule : {Rule::kAdamW, Rule::kMuon, Rule::kEightBit})
      for (const DType compute : {DType::f32, DType::bf16}) {
        RunConfig config = matrix_model(is_llama, layout);
        if (rule == Rule::kMuon) config = with_muon(config, compute);
        if (rule == Rule::kEightBit) config = with_8bit(config);
        config.precision.compute = compute;
        config.parallel = layout;
        config.parallel.muon_payload = compute;
        const bool has_rounded_sums = layout.tp > 1 && compute == DType::bf16;
        double tolerance = std::max(f32_tolerance, rule == Rule::kEightBit ? kEdge : kF32);
        if (compute == DType::bf16) tolerance = std::max(f32_tolerance, has_rounded_sums ? 2 * kBf16 : kBf16);
        expect_one_rank_curve(config, tolerance,
                              fmt::format("{}, rule {}, {}", is_llama ? "LLaMA" : "GPT-2",
                                          static_cast<int>(rule), name(compute)));
        if (::testing::Test::HasFatalFailure()) return;
      }
}

constexpr PipelineKind kGpipe = PipelineKind::kGpipe, kOneFOneB = PipelineKind::kOneFOneB,
                       kInterleaved = PipelineKind::kInterleaved;

TEST(Matrix, ReplicasMatchOneRank) { expect_all(replicas()); }

TEST(Matrix, CompressedReplicasMatchOneRank) {
  ParallelConfig layout = replicas();
  layout.payload = DType::bf16;
  expect_all(layout, kCompressed);
}

TEST(Matrix, ShardsMatchOneRank) { expect_all(shards()); }

TEST(Matrix, ReplicasOfShardsMatchOneRank) {
  if (world->size() < 4) GTEST_SKIP() << "has 4 ranks";
  expect_all(replicas_of_shards());
}

TEST(Matrix, TensorParallelismMatchesOneRank) {
  expect_all(sharing(4, false));
  expect_all(sharing(4, true));
}

TEST(Matrix, StagesMatchOneRank) {
  if (world->size() == 1) GTEST_SKIP() << "one rank";
  expect_all(stages(8, kGpipe));
  expect_all(stages(8, kOneFOneB));
  expect_all(stages(std::min(4, world->size()), kInterleaved, 2));
}

TEST(Matrix, StagesWithTensorParallelismMatchOneRank) {
  if (world->size() < 4) GTEST_SKIP() << "has 4 ranks";
  expect_all(stages(world->size() / 2, kOneFOneB, 1, 2));
}

TEST(Matrix, AllThreeTogetherMatchOneRank) {
  if (world->size() < 8) GTEST_SKIP() << "has 8 ranks";
  expect_all(stages(2, kInterleaved, 2, 2));
}

TEST(Matrix, TensorParallelismWithShardsMatchesOneRank) {
  if (world->size() < 4) GTEST_SKIP() << "has 4 ranks";
  expect_all(sharing_of_shards());
}

// The first steps overflow on some ranks. All ranks must then skip the update and continue with the same,
// lower scale. f16 rounds eight times finer than bf16.
TEST(Matrix, LossScalingInF16MatchesOneRank) {
  std::vector<ParallelConfig> layouts{replicas(), shards(), sharing(2), stages(4, kOneFOneB)};
  if (world->size() >= 8) layouts.push_back(stages(2, kInterleaved, 2, 2));
  for (const bool is_llama : {false, true})
    for (const ParallelConfig& layout : layouts) {
      RunConfig config = matrix_model(is_llama, layout);
      config.precision.compute = DType::f16;
      config.precision.loss_scale.init = 0x1p30;
      config.parallel = layout;
      EXPECT_LT(one_rank_curve(config).scales.back(), 0x1p29) << "nothing overflowed";
      expect_one_rank_curve(config, kBf16 / 8);
    }
}

}  // namespace
}  // namespace ingot

int main(int argc, char** argv) { return ingot::run_on_ranks(argc, argv); }
