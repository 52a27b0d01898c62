// The FP8 recipes of a linear layer, against double-precision products of operands
// rounded here, and inside a model.
#include "ingot/nn/fp8_linear.h"

#include <gtest/gtest.h>

#include "ingot/core/float8.h"
#include "ingot/nn/transformer.h"
#include "tests/reference/numeric.h"

namespace ingot::test {
namespace {

constexpr Fp8Recipe kRecipes[] = {Fp8Recipe::kTensorwise, Fp8Recipe::kRowwise, Fp8Recipe::kRowwiseGwHp,
                                  Fp8Recipe::kDelayed};

double rounded(DType format, double x, float scale) {
  const float scaled = static_cast<float>(x) * scale;
  const float value =
      format == DType::f8e4m3 ? static_cast<float>(f8e4m3(scaled)) : static_cast<float>(f8e5m2(scaled));
  return static_cast<double>(value) / static_cast<double>(scale);
}

float power_floor(double x) { return static_cast<float>(std::exp2(std::floor(std::log2(x)))); }

// Returns a matrix with its rows or columns rounded to e4m3, each scaled by a power of two from its own amax.
enum class Along { kRows, kColumns };
Doubles rounded_lines(const Doubles& x, size_t columns, Along along) {
  const size_t rows = x.size() / columns, lines = along == Along::kRows ? rows : columns;
  const auto line = [&](size_t i) { return along == Along::kRows ? i / columns : i % columns; };
  Doubles amax(lines), out;
  for (size_t i = 0; i < x.size(); ++i) amax[line(i)] = std::max(amax[line(i)], std::abs(x[i]));
  for (size_t i = 0; i < x.size(); ++i)
    out.push_back(rounded(DType::f8e4m3, x[i], power_floor(448 / amax[line(i)])));
  return out;
}
Doubles rounded_whole(const Doubles& x, DType format, bool is_power) {
  double amax = 0;
  for (double v : x) amax = std::max(amax, std::abs(v));
  const double exact = static_cast<double>(float8_max(format)) / amax;
  Doubles out;
  for (double v : x)
    out.push_back(rounded(format, v, is_power ? power_floor(exact) : static_cast<float>(exact)));
  return out;
}

// Returns c (M, N) = a (M, K) · b, where a and b are functions of an element's indices; b's are (k, n).
template <typename A, typename B>
Doubles product(size_t M, size_t N, size_t K, A&& a, B&& b) {
  Doubles c(M * N);
  for (size_t m = 0; m < M; ++m)
    for (size_t n = 0; n < N; ++n)
      for (size_t k = 0; k < K; ++k) c[m * N + n] += a(m, k) * b(k, n);
  return c;
}

class Fp8LinearTest : public ::testing::TestWithParam<std::tuple<Fp8Recipe, DType>> {
 protected:
  static constexpr int64_t kN = 24, kOut = 48, kIn = 32;
  Fp8Recipe recipe = std::get<0>(GetParam());
  DType compute = std::get<1>(GetParam());
  Fp8Linear linear{recipe, 0};
  Fp8State state{{"x", "w", "dy"}, recipe == Fp8Recipe::kDelayed ? 4 : 0, 0};
  Arena scratch{"scratch", planned()};
  Region region;
  Stream stream;
  Buffer x = skewed({kN, kIn}, 1), w = skewed({kOut, kIn}, 2), dy = skewed({kN, kOut}, 3);
  Doubles xs = to_doubles(x), ws = to_doubles(w), dys = to_doubles(dy);

  size_t planned() const {
    Arena arena("plan");
    linear.plan_forward(arena, kN, kOut, kIn);
    linear.plan_backward(arena, kN, kOut, kIn);
    return arena.peak_bytes();
  }
  // The rows and columns have very different magnitudes, so that it matters which of them share a scale.
  Buffer skewed(const Shape& shape, uint32_t stream_number) const {
    Buffer t = random_tensor(compute, shape, stream_number);
    Doubles values = to_doubles(t);
    for (size_t i = 0; i < values.size(); ++i) {
      const size_t row = i / static_cast<size_t>(shape[1]), column = i % static_cast<size_t>(shape[1]);
      values[i] *= std::ldexp(1.0, static_cast<int>(row % 5) - static_cast<int>(column % 7));
    }
    assign(t, values);
    return t;
  }
  bool is_rowwise() const { return recipe == Fp8Recipe::kRowwise || recipe == Fp8Recipe::kRowwiseGwHp; }
  double tolerance() const { return 2 * unit_roundoff(compute) + 1e-5; }
  double magnitude(const Doubles& values) const {
    double largest = 0;
    for (double v : values) largest = std::max(largest, std::abs(v));
    return largest;
  }
  // The tolerance is relative to the largest value. Where f32 and double round a value to different FP8
  // codes, one of the many terms of a sum moves by one step.
  void expect_near(const Tensor& got, const Doubles& want, const char* what) {
    expect_close(got, want, tolerance(), what, magnitude(want));
  }
};

TEST_P(Fp8LinearTest, ProductsMatchThoseOfRoundedOperands) {
  Buffer y(compute, {kN, kOut}), dx(compute, {kN, kIn}), dw = random_tensor(DType::f32, {kOut, kIn}, 4);
  const Doubles dw_before = to_doubles(dw);
  for (const auto& run : {std::function<void()>([&] {
                            linear.forward(y, x, {}, w, {}, {state, scratch, region, stream});
                          }),
                          std::function<void()>([&] {
                            linear.backward(dx, {dw}, dy, x, {}, w, {state, scratch, region, stream});
                          })}) {
    run();
    scratch.release_to(0);
  }
  const auto at = [](const Doubles& t, size_t columns) {
    return [&t, columns](size_t r, size_t c) { return t[r * columns + c]; };
  };
  const auto turned = [](const Doubles& t, size_t columns) {
    return [&t, columns](size_t r, size_t c) { return t[c * columns + r]; };
  };
  const DType gradient = is_rowwise() ? DType::f8e4m3 : DType::f8e5m2;
  // Row-wise scales are one per line of the dim that is summed over: rows of x and w in forward, rows of
  // dy and columns of w for dx, and columns of dy and x for dw.
  const Doubles xf =
      is_rowwise() ? rounded_lines(xs, kIn, Along::kRows) : rounded_whole(xs, DType::f8e4m3, false);
  const Doubles wf =
      is_rowwise() ? rounded_lines(ws, kIn, Along::kRows) : rounded_whole(ws, DType::f8e4m3, false);
  expect_near(y, product(kN, kOut, kIn, at(xf, kIn), turned(wf, kIn)), "y");

  const Doubles gi =
      is_rowwise() ? rounded_lines(dys, kOut, Along::kRows) : rounded_whole(dys, gradient, false);
  const Doubles wi = recipe == Fp8Recipe::kRowwise ? rounded_lines(ws, kIn, Along::kColumns)
                                                   : rounded_whole(ws, DType::f8e4m3, is_rowwise());
  expect_near(dx, product(kN, kIn, kOut, at(gi, kOut), at(wi, kIn)), "dx");

  const bool is_plain = recipe == Fp8Recipe::kRowwiseGwHp;
  const Doubles gw = is_plain       ? dys
                     : is_rowwise() ? rounded_lines(dys, kOut, Along::kColumns)
                                    : rounded_whole(dys, gradient, false);
  const Doubles xw = is_plain       ? xs
                     : is_rowwise() ? rounded_lines(xs, kIn, Along::kColumns)
                                    : rounded_whole(xs, DType::f8e4m3, false);
  Doubles want_dw = product(kOut, kIn, kN, turned(gw, kOut), at(xw, kIn));
  for (size_t i = 0; i < want_dw.size(); ++i) want_dw[i] += dw_before[i];
  expect_near(dw, want_dw, "dw");
  EXPECT_EQ(state.total().saturated, 0) << "scales from the amax of the tensor itself";
}

INSTANTIATE_TEST_SUITE_P(Recipes, Fp8LinearTest,
                         ::testing::Combine(::testing::ValuesIn(kRecipes),
                                            ::testing::Values(DType::f32, DType::bf16, DType::f16)));

TEST(Fp8StateTest, DelayedScaleUsesTheLargestAmaxOfTheLastSteps) {
  Fp8State state({"a", "b"}, 3, 1);
  EXPECT_EQ(state.delayed_scale(0, DType::f8e4m3), 0) << "nothing seen yet";
  for (const float amax : {8.0f, 2.0f, 1.0f, 0.5f}) {
    state.begin_step();
    state[0].add({.elements = 1, .amax = amax});
    state.end_step();
  }
  EXPECT_EQ(state.delayed_scale(0, DType::f8e4m3), 448.0f / 2 / 2)
      << "8 is 4 steps ago; margin of one octave";
  EXPECT_EQ(state.delayed_scale(1, DType::f8e4m3), 0);
  state.begin_step();
  state[0].add({.elements = 1, .amax = std::numeric_limits<float>::infinity()});
  state.end_step();
  EXPECT_EQ(state.delayed_scale(0, DType::f8e4m3), 112.0f) << "an infinite amax does not enter";
  EXPECT_EQ(state.amaxes().size(), 6u);
}

TEST(Fp8StateTest, AnOutdatedScaleSaturatesAndIsCounted) {
  Region region;
  Stream stream;
  const Fp8Linear linear{Fp8Recipe::kDelayed, 0};
  Fp8State state({"x", "w", "dy"}, 2, 0);
  Arena plan("plan");
  linear.plan_forward(plan, 16, 16, 16);
  Arena scratch("scratch", plan.peak_bytes());
  Buffer x(DType::bf16, {16, 16}), w = random_tensor(DType::bf16, {16, 16}, 1), y(DType::bf16, {16, 16});
  for (const double value : {1.0, 4.0}) {
    assign(x, Doubles(256, value));
    state.begin_step();
    linear.forward(y, x, {}, w, {}, {state, scratch, region, stream});
    scratch.release_to(0);
    state.end_step();
    EXPECT_EQ(state[0].saturated, value == 1.0 ? 0 : 256);
    EXPECT_EQ(state[1].saturated, 0);
  }
}

TEST(Fp8LinearConfigTest, ConvertsTheLayersThatThePatternsName) {
  Fp8LinearConfig config{.recipe = Fp8Recipe::kRowwise};
  EXPECT_TRUE(config.converts("blocks.0.mlp.up", 64, 32));
  EXPECT_FALSE(config.converts("blocks.0.mlp.up", 72, 32)) << "not multiples of 16";
  config.layers = {"blocks.*.mlp.*", "blocks.1.attention.qkv"};
  EXPECT_TRUE(config.converts("blocks.10.mlp.down", 64, 32));
  EXPECT_TRUE(config.converts("blocks.1.attention.qkv", 64, 32));
  EXPECT_FALSE(config.converts("blocks.11.attention.qkv", 64, 32));
  EXPECT_TRUE(matches_pattern("abc", "*"));
  EXPECT_TRUE(matches_pattern("abc", "a*c"));
  EXPECT_FALSE(matches_pattern("abcd", "a*c"));
  EXPECT_FALSE(matches_pattern("", "a"));
}

}  // namespace
}  // namespace ingot::test
