// Weights that are stored in bf16, and moving averages of weights.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <utility>

#include "ingot/core/parallel.h"
#include "ingot/ops/bf16_tail.h"
#include "ingot/optim/stochastic_rounding.h"
#include "tests/optim/optimizer_fixture.h"

namespace ingot::test {
namespace {

// A bf16 parameter, with or without a tail, that starts from the same numbers as the f32 one.
struct Bf16Param {
  Buffer w, tail, g;
  OptimParam param;

  Bf16Param(const OptimParam& f32, bool has_tail)
      : w(DType::bf16, f32.w.shape), tail(DType::u16, f32.w.shape), g(DType::f32, f32.w.shape), param(f32) {
    for (int64_t i = 0; i < f32.elements(); ++i) {
      if (has_tail)
        split_tail(w.tensor().as<bf16>()[i], tail.tensor().as<uint16_t>()[i], f32.w.as<float>()[i]);
      else
        w.tensor().as<bf16>()[i] = bf16(f32.w.as<float>()[i]);
    }
    param.w = w;
    if (has_tail) param.tail = tail;
    param.g = g;
    param.compute = {};
    param.rounding = {.seed = 5, .purpose = Purpose::kRounding, .stream = 3};
  }
};

class TailOf : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Rules, TailOf, ::testing::ValuesIn(all_kinds()),
                         [](const auto& info) { return info.param; });

// A bf16 weight and its 16-bit tail are an f32 master: equal gradients give equal bits with every rule.
TEST_P(TailOf, WeightAndTailAreTheF32MasterBitForBit) {
  Params params;
  params.add("w", ParamRole::kMatrix, {129, 67});
  Bf16Param split(params.list[0], true);
  const OptimizerConfig config{.lr = 0.01, .rule = {.kind = GetParam()}};
  Optimizer whole(config, params.list), halves(config, {split.param});
  Stream stream;
  for (int t = 1; t <= 5; ++t) {
    params.draw_gradients(t);
    assign(split.g, to_doubles(params.list[0].g));
    whole.step({.lr = 0.01}, 0.5f, stream);
    halves.step({.lr = 0.01}, 0.5f, stream);
    for (int64_t i = 0; i < params.list[0].elements(); ++i)
      ASSERT_EQ(join_tail(split.w.tensor().as<bf16>()[i], split.tail.tensor().as<uint16_t>()[i]),
                params.list[0].w.as<float>()[i])
          << "step " << t;
  }
  EXPECT_TRUE(state_contents(whole) == state_contents(halves));
}

TEST(StochasticRounding, PicksEachNeighbourInProportion) {
  const float low = 1.0f, gap = 0x1p-7f;
  for (double part : {0.0, 0.25, 0.5, 0.9}) {
    const auto x = static_cast<float>(low + part * gap);
    int64_t up = 0;
    for (uint32_t random = 0; random < 0x10000; ++random) {
      const auto rounded = static_cast<float>(round_stochastically(x, static_cast<uint16_t>(random)));
      ASSERT_TRUE(rounded == low || rounded == low + gap);
      up += rounded != low;
    }
    EXPECT_NEAR(static_cast<double>(up) / 0x10000, part, 0x1p-15);
    EXPECT_EQ(static_cast<float>(round_stochastically(-x, 0)), -low);
  }
  const float inf = std::numeric_limits<float>::infinity();
  for (uint16_t random : {0, 0x8000, 0xffff}) {
    EXPECT_EQ(static_cast<float>(round_stochastically(inf, random)), inf);
    EXPECT_EQ(static_cast<float>(round_stochastically(-inf, random)), -inf);
    EXPECT_TRUE(std::isnan(static_cast<float>(round_stochastically(std::nanf("1"), random))));
  }
}

// Each update is a hundredth of a bf16 step. With rounding to nearest no weight would ever move; with
// stochastic rounding their mean does.
TEST(StochasticRounding, KeepsTheMeanOfSmallUpdates) {
  Params params;
  params.add("w", ParamRole::kMatrix, {100, 100});
  assign(params.list[0].w, Doubles(10000, 1.0));
  Bf16Param weights(params.list[0], false);
  Optimizer optimizer({.lr = 0.01, .rule = {.kind = "sgd", .options = {{&Sgd::Options::weight_decay, 0.0}}}},
                      {weights.param});
  Stream stream;
  constexpr double kStep = 0x1p-7 / 100;
  for (int t = 1; t <= 50; ++t) {
    assign(weights.g, Doubles(10000, -1.0));
    optimizer.step({.lr = kStep}, 1, stream);
  }
  double mean = 0;
  for (double x : to_doubles(weights.w)) mean += x / 10000;
  // Each weight is at most one step off, with a deviation of half a step; the bound is
  // 4 sigma of the mean of 10000.
  EXPECT_NEAR(mean, 1 + 50 * kStep, 4 * 0x1p-8 / 100);
}

TEST(StochasticRounding, BitsDependOnlyOnSeedStepAndElement) {
  const int threads = num_threads();
  std::vector<Doubles> results;
  for (const auto& [n, seed] : {std::pair<int, uint64_t>{1, 5}, {3, 5}, {1, 6}}) {
    set_num_threads(n);
    Params params;
    params.add("w", ParamRole::kMatrix, {300, 257});
    Bf16Param weights(params.list[0], false);
    weights.param.rounding.seed = seed;
    Optimizer optimizer({.lr = 0.01}, {weights.param});
    Stream stream;
    for (int t = 1; t <= 2; ++t) {
      params.draw_gradients(t);
      assign(weights.g, to_doubles(params.list[0].g));
      optimizer.step({.lr = 0.01}, 1, stream);
    }
    results.push_back(to_doubles(weights.w));
  }
  set_num_threads(threads);
  EXPECT_TRUE(results[0] == results[1]);
  EXPECT_FALSE(results[0] == results[2]);
}

TEST(StochasticRounding, HalvesAreThePhiloxWords) {
  const RandomKey key{.seed = 9, .purpose = Purpose::kRounding, .stream = 2, .step = 7};
  uint16_t halves[1000];
  random_halves(halves, RandomBlocks(key), 512, 1000);
  for (uint64_t i = 0; i < 1000; ++i) {
    const uint32_t word = random_word(key, (512 + i) / 2);
    ASSERT_EQ(halves[i], static_cast<uint16_t>(i % 2 == 0 ? word : word >> 16)) << i;
  }
}

TEST(WeightAverage, FollowsTheReferenceAndIsSaved) {
  Params averaged, plain;
  for (Params* p : {&averaged, &plain}) p->add("w", ParamRole::kMatrix, {70, 50});
  OptimizerConfig config{.lr = 0.01};
  Optimizer without(config, plain.list);
  config.ema = 0.9;
  Optimizer with(config, averaged.list);
  Stream stream;
  Doubles want;
  for (int t = 1; t <= 5; ++t) {
    averaged.draw_gradients(t);
    plain.draw_gradients(t);
    with.step({.lr = 0.01}, 1, stream);
    without.step({.lr = 0.01}, 1, stream);
    ASSERT_TRUE(averaged.weights() == plain.weights());
    const Doubles w = to_doubles(plain.list[0].w);
    if (t == 1) want = w;
    for (size_t i = 0; i < w.size(); ++i) want[i] = 0.9 * want[i] + 0.1 * w[i];
    expect_close(with.average(0), want, t * 4 * unit_roundoff(DType::f32), "average");
  }
  EXPECT_EQ(with.states().back().name, "ema.w");
  EXPECT_EQ(with.state_bytes(), without.state_bytes() + 4 * 70 * 50);
}

}  // namespace
}  // namespace ingot::test
