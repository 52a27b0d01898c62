// Compares training with FP8 linears and an FP8 head on several ranks with the same training on one rank.
//
// A layout adds gradients in another order, which may change every weight by a unit in its last place at
// every step. In FP8 such a change sends some values to the neighbouring code, 2^-4 away, so losses differ by
// more than in f32. By how much is measured: one rank trains again while every weight moves up, down or not
// at all, at random, by one unit in its last place after every step. A layout may be as far from the curve of
// one rank as the farthest of several such runs is, and twice as far, because a few runs do not find the
// farthest.
#include <algorithm>
#include <cmath>
#include <limits>

#include "tests/parallel/mpi/one_rank_curve.h"

namespace ingot {
namespace {

constexpr int kNullRuns = 16;
constexpr double kMoreThanSeen = 2;

void nudge(Trainer& trainer, uint64_t run, int step) {
  const RandomKey key{
      .seed = run, .purpose = Purpose::kSample, .stream = 1, .step = static_cast<uint64_t>(step)};
  uint64_t i = 0;
  for (const ParamShard& shard : trainer.params().shards()) {
    float* const w = shard.w.as<float>();
    for (int64_t k = 0; k < shard.w.elements(); ++k) {
      const uint32_t way = random_word(key, i++) % 3;
      if (way > 0) w[k] = std::nextafter(w[k], way == 1 ? HUGE_VALF : -HUGE_VALF);
    }
  }
  trainer.params().refresh_compute(*trainer.layout().stream);
}

// The largest relative difference between two curves.
double distance(const std::vector<double>& a, const std::vector<double>& b) {
  double most = a.size() == b.size() ? 0 : std::numeric_limits<double>::infinity();
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) most = std::max(most, std::abs(a[i] / b[i] - 1));
  return most;
}

// Returns the largest distance from `want` to which rounding alone takes the losses of one rank. The ranks
// divide the runs among themselves.
double rounding_distance(RunConfig config, const std::vector<double>& want) {
  config.parallel = {};
  double most = 0;
  for (int run = world->rank(); run < kNullRuns; run += world->size()) {
    Training alone(config);
    std::vector<double> losses;
    for (int step = 0; step < kSteps; ++step) {
      losses.push_back(alone.trainer.step(alone.loader, {.lr = config.optimizer.lr}).loss);
      nudge(alone.trainer, static_cast<uint64_t>(run), step);
    }
    most = std::max(most, distance(losses, want));
  }
  return world->max(most);
}

RunConfig in_fp8(RunConfig config, Fp8Recipe recipe) {
  config.model.dropout = 0;
  config.train.batch_size = 2;
  config.train.grad_accum = 8;  // every rank has whole micro-batches, so one scale covers the same values
  config.precision.compute = DType::bf16;
  config.precision.fp8 = {.recipe = recipe, .amax_history = 4};
  config.head.precision = HeadPrecision::kFp8;
  return config;
}

void expect_near_one_rank(const RunConfig& base, const std::vector<ParallelConfig>& layouts) {
  if (world->size() == 1) GTEST_SKIP() << "one rank";
  const TrainingCurve& want = one_rank_curve(base);
  const double limit = rounding_distance(base, want.losses);
  for (const ParallelConfig& layout : layouts) {
    RunConfig config = base;
    config.parallel = layout;
    Mesh mesh = Mesh::make(*world, mesh_shape(layout));
    Training shared(config, mesh);
    const double got = distance(shared.losses(), want.losses);
    EXPECT_LE(got, kMoreThanSeen * limit) << layout.to_string();
    expect_one_rank_gradients(config);
  }
}

std::vector<ParallelConfig> layouts() {
  std::vector<ParallelConfig> all = {replicas(), shards(), stages(2, PipelineKind::kOneFOneB)};
  if (world->size() > 2) all.push_back(replicas_of_shards());
  return all;
}

std::vector<ParallelConfig> with_tensor_ranks(std::vector<ParallelConfig> layouts) {
  layouts.push_back(sharing(2));
  return layouts;
}

TEST(Fp8, TensorwiseLinearsFollowOneRank) {
  expect_near_one_rank(in_fp8(gpt2(), Fp8Recipe::kTensorwise), with_tensor_ranks(layouts()));
}

TEST(Fp8, LinearsWithDelayedScalesFollowOneRank) {
  expect_near_one_rank(in_fp8(llama(), Fp8Recipe::kDelayed), with_tensor_ranks(layouts()));
}

// A tensor-parallel rank scales its shard of a line, and the products of the shards are added.
TEST(Fp8, RowwiseLinearsFollowOneRank) {
  for (const Fp8Recipe recipe : {Fp8Recipe::kRowwise, Fp8Recipe::kRowwiseGwHp})
    expect_near_one_rank(in_fp8(llama(), recipe), with_tensor_ranks(layouts()));
}

}  // namespace
}  // namespace ingot

int main(int argc, char** argv) { return ingot::run_on_ranks(argc, argv); }
