#include "ingot/optim/rules/adamw_8bit.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "ingot/optim/rules/dynamic_map.h"
#include "tests/optim/optimizer_fixture.h"
#include "tests/reference/optimizers.h"

namespace ingot::test {
namespace {

const OptimizerConfig kConfig{.lr = 0.01, .rule = {.kind = "adamw8bit"}};

// Returns the dequantized m or v of the optimizer's only parameter.
Doubles decoded(const Optimizer& optimizer, bool is_m) {
  const auto map = dynamic_map(is_m);
  const Tensor codes = optimizer.states()[is_m ? 0 : 1].tensor,
               most = optimizer.states()[is_m ? 2 : 3].tensor;
  Doubles values;
  for (int64_t i = 0; i < codes.elements(); ++i)
    values.push_back(static_cast<double>(map[codes.as<uint8_t>()[i]]) * most.as<float>()[i / 256]);
  return values;
}

TEST(AdamW8bit, OnlyElementsOfSharedBlocksNeedScratch) {
  Params params;
  params.add("w", ParamRole::kMatrix, {4096, 1}, true);
  OptimParam param = params.list[0];
  const AdamW8bit rule({});
  EXPECT_EQ(rule.scratch_bytes(param), 0u);
  param.is_scattered = true;
  EXPECT_GE(rule.scratch_bytes(param), 2 * (4096 / AdamW8bit::kBlock) * sizeof(float));
}

class AdamW8bitSizes : public ::testing::TestWithParam<int64_t> {};
INSTANTIATE_TEST_SUITE_P(Sizes, AdamW8bitSizes, ::testing::Values(4096, 4351, 12000));

// Compares ten steps with the reference, which searches all codes for the nearest one. A number midway
// between two codes may round either way, so the states agree to one code's width, and the reference
// continues from the optimizer's state.
TEST_P(AdamW8bitSizes, FollowsTheReference) {
  const int64_t n = GetParam();
  Params params;
  params.add("w", ParamRole::kMatrix, {n, 1}, true);
  Optimizer optimizer(kConfig, params.list);
  Stream stream;
  std::vector<AdamW8bitBlock> blocks;
  for (int64_t t = 1; t <= 10; ++t) {
    const Doubles w = to_doubles(params.list[0].w), m = decoded(optimizer, true),
                  v = decoded(optimizer, false);
    params.draw_gradients(static_cast<int>(t));
    const Doubles g = to_doubles(params.list[0].g);
    optimizer.step({.lr = 0.01}, 0.5f, stream);
    const Doubles new_w = to_doubles(params.list[0].w), new_m = decoded(optimizer, true),
                  new_v = decoded(optimizer, false);
    for (size_t first = 0; first < w.size(); first += 256) {
      const size_t end = std::min(first + 256, w.size());
      const auto cut = [&](const Doubles& all, double scale) {
        Doubles part;
        for (size_t i = first; i < end; ++i) part.push_back(scale * all[i]);
        return part;
      };
      AdamW8bitBlock block{cut(w, 1), cut(m, 1), cut(v, 1)};
      block.step(cut(g, 0.5), 0.01, 0.1, static_cast<int>(t));
      double m_most = 0, v_most = 0;
      for (size_t i = 0; i < end - first; ++i) {
        m_most = std::max(m_most, std::abs(block.m[i]));
        v_most = std::max(v_most, block.v[i]);
      }
      for (size_t i = 0; i < end - first; ++i) {
        ASSERT_NEAR(new_w[first + i], block.w[i],
                    16 * unit_roundoff(DType::f32) * std::max(1.0, std::abs(block.w[i])))
            << "step " << t << " element " << first + i;
        // Neighbouring codes are at most 0.9/64 (m) and 0.9/128 (v) of a decade apart; at the border
        // between two, f32 rounding decides.
        ASSERT_NEAR(new_m[first + i], block.m[i], 0.0142 * m_most);
        ASSERT_NEAR(new_v[first + i], block.v[i], 0.0071 * v_most);
      }
    }
  }
  EXPECT_EQ(optimizer.non_finite_gradients(), 0);
}

TEST(AdamW8bit, AlmostAllCodesEqualTheReference) {
  Params params;
  params.add("w", ParamRole::kMatrix, {64, 256});
  Optimizer optimizer(kConfig, params.list);
  Stream stream;
  params.draw_gradients(1);
  const Doubles g = to_doubles(params.list[0].g);
  optimizer.step({.lr = 0.01}, 1, stream);
  const Doubles map = dynamic_map_reference(true);
  int64_t differ = 0;
  for (size_t first = 0; first < g.size(); first += 256) {
    double most = 0;
    for (size_t i = first; i < first + 256; ++i) most = std::max(most, std::abs(g[i]));
    for (size_t i = first; i < first + 256; ++i)
      differ += optimizer.states()[0].tensor.as<uint8_t>()[i] != nearest_code(map, g[i] / most);
  }
  EXPECT_LE(differ, 2) << "of " << g.size();
}

TEST(AdamW8bit, SmallParametersHaveF32States) {
  Params small, reference;
  small.add("w", ParamRole::kMatrix, {4095, 1});
  reference.add("w", ParamRole::kMatrix, {4095, 1});
  Optimizer optimizer(kConfig, small.list), adamw({.lr = 0.01}, reference.list);
  Stream stream;
  for (int t = 1; t <= 3; ++t) {
    small.draw_gradients(t);
    reference.draw_gradients(t);
    optimizer.step({.lr = 0.01}, 1, stream);
    adamw.step({.lr = 0.01}, 1, stream);
  }
  EXPECT_TRUE(small.weights() == reference.weights());
}

// A gradient that is not finite is counted. Its weight and moments stay, and its neighbours are updated.
TEST(AdamW8bit, NonFiniteGradientsAreCounted) {
  const float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  Params params;
  params.add("w", ParamRole::kMatrix, {40, 256});
  Optimizer optimizer(kConfig, params.list);
  Stream stream;
  params.draw_gradients(1);
  optimizer.step({.lr = 0.01}, 1, stream);
  EXPECT_EQ(optimizer.non_finite_gradients(), 0);
  const Doubles w = to_doubles(params.list[0].w), m = decoded(optimizer, true), v = decoded(optimizer, false);
  params.draw_gradients(2);
  float* g = params.list[0].g.as<float>();
  const size_t bad[] = {0, 300, 301, 9000, 10239};
  const float values[] = {nan, inf, -inf, 1e30f, nan};  // the square of 1e30 overflows f32
  for (size_t i = 0; i < 5; ++i) g[bad[i]] = values[i];
  optimizer.step({.lr = 0.01}, 1, stream);
  EXPECT_EQ(optimizer.non_finite_gradients(), 5);
  const Doubles after = to_doubles(params.list[0].w), new_m = decoded(optimizer, true),
                new_v = decoded(optimizer, false);
  for (size_t i = 0; i < after.size(); ++i) ASSERT_TRUE(std::isfinite(after[i]) && std::isfinite(new_m[i]));
  for (size_t i : bad) {
    EXPECT_EQ(after[i], w[i]);
    EXPECT_NEAR(new_m[i], m[i], 0.0142 * 0.1);  // quantized again with the block's new scale
    EXPECT_NEAR(new_v[i], v[i], 0.0071 * 0.01);
    EXPECT_NE(new_m[i], 0);
  }
  EXPECT_NE(after[1], w[1]);
}

}  // namespace
}  // namespace ingot::test
