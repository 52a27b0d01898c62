#include "ingot/optim/rules/muon.h"

#include <gtest/gtest.h>

#include <cmath>

#include "ingot/optim/rules/newton_schulz.h"
#include "tests/optim/optimizer_fixture.h"
#include "tests/reference/optimizers.h"

namespace ingot::test {
namespace {

// Returns x after newton_schulz.
Doubles orthogonalised(const Tensor& x, NewtonSchulzKind kind, DType iteration) {
  Arena scratch("scratch", newton_schulz_scratch_bytes(x.dim(0), x.dim(1), iteration));
  Stream stream;
  newton_schulz(x, kind, iteration, scratch, stream);
  EXPECT_EQ(scratch.used_bytes(), 0u);
  return to_doubles(x);
}

// Returns what the iteration makes of one singular value of a matrix with this norm.
double iterated(double singular, double norm, NewtonSchulzKind kind) {
  double s = kind == NewtonSchulzKind::kQuintic ? singular / (norm + 1e-7) : singular / (1.02 * norm + 1e-6);
  for (const auto& [a, b, c] : newton_schulz_steps(kind)) s = a * s + b * s * s * s + c * s * s * s * s * s;
  return s;
}

class NewtonSchulz : public ::testing::TestWithParam<std::tuple<NewtonSchulzKind, Shape>> {
 protected:
  NewtonSchulzKind kind = std::get<0>(GetParam());
  Shape shape = std::get<1>(GetParam());
  size_t R = static_cast<size_t>(shape[0]), C = static_cast<size_t>(shape[1]);
  // The published interval of each iteration, for singular values above 0.002 of the norm.
  double low = kind == NewtonSchulzKind::kQuintic ? 0.68 : 0.84;
  double high = kind == NewtonSchulzKind::kQuintic ? 1.21 : 1.15;
};
INSTANTIATE_TEST_SUITE_P(Shapes, NewtonSchulz,
                         ::testing::Combine(::testing::Values(NewtonSchulzKind::kQuintic,
                                                              NewtonSchulzKind::kPolarExpress),
                                            ::testing::Values(Shape{12, 40}, Shape{40, 12}, Shape{1, 33},
                                                              Shape{33, 1}, Shape{24, 24})));

// Singular values move as the scalar polynomial says, and singular vectors stay: XᵀO is symmetric.
TEST_P(NewtonSchulz, AppliesThePolynomialToSingularValues) {
  Buffer x = random_tensor(DType::f32, shape, 7);
  const Doubles before = to_doubles(x);
  Doubles want = singular_values(before, R, C);
  const double norm = std::sqrt(dot(before, before));
  for (double& s : want) s = iterated(s, norm, kind);
  std::sort(want.rbegin(), want.rend());
  const Doubles after = orthogonalised(x, kind, DType::f32);
  const Doubles got = singular_values(after, R, C);
  // There are 15 products of up to 40 terms, and the slope at 0 multiplies an error by up to
  // 8.2 * 4.0 * 3.9 * 3.3 * 2.3.
  const double tolerance = 1000 * 15 * std::sqrt(40.0) * unit_roundoff(DType::f32);
  for (size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(got[i], want[i], tolerance) << i;
  for (size_t p = 0; p < C; ++p)
    for (size_t q = 0; q < p; ++q) {
      double pq = 0, qp = 0;
      for (size_t r = 0; r < R; ++r) {
        pq += before[r * C + p] * after[r * C + q];
        qp += before[r * C + q] * after[r * C + p];
      }
      ASSERT_NEAR(pq, qp, tolerance * norm);
    }
}

TEST_P(NewtonSchulz, SingularValuesEndInTheStatedInterval) {
  for (DType iteration : {DType::f32, DType::bf16}) {
    Buffer x = random_tensor(DType::f32, shape, 8);
    // A random square matrix has a singular value near 0, which five steps do not lift into the interval.
    for (size_t i = 0; R == C && i < R; ++i) x.tensor().as<float>()[i * C + i] += 8;
    const Doubles before = to_doubles(x);
    ASSERT_GT(singular_values(before, R, C).back(), 0.002 * std::sqrt(dot(before, before)));
    const Doubles s = singular_values(orthogonalised(x, kind, iteration), R, C);
    // In bf16, each of the 15 intermediate matrices is rounded by 2^-9, in independent directions.
    const double slack = iteration == DType::bf16 ? 15 * 0x1p-9 : 1e-4;
    EXPECT_LE(s.front(), high + slack);
    EXPECT_GE(s.back(), low - slack);
  }
}

TEST(NewtonSchulzZero, KeepsZerosZero) {
  for (auto kind : {NewtonSchulzKind::kQuintic, NewtonSchulzKind::kPolarExpress})
    for (DType iteration : {DType::f32, DType::bf16}) {
      Buffer x = zeros(DType::f32, {6, 4});
      for (double v : orthogonalised(x, kind, iteration)) EXPECT_EQ(v, 0);
    }
}

using Options = Muon::Options;

OptimizerConfig muon_config(const GivenOptions& options) {
  return {.lr = 0.02, .rule = {.kind = "muon", .options = options}};
}

TEST(Muon, AZeroGradientChangesNoWeight) {
  for (const bool is_normuon : {false, true}) {
    Params params;
    params.add("w", ParamRole::kMatrix, {20, 30});
    const std::vector<Doubles> before = params.weights();
    Optimizer optimizer(muon_config({{&Options::weight_decay, 0.0}, {&Options::normuon, is_normuon}}),
                        params.list);
    Stream stream;
    optimizer.step({.lr = 0.02}, 1, stream);
    EXPECT_TRUE(params.weights() == before);
  }
}

// The size of the update does not depend on the gradient's size; it is sqrt(max(1, R / C))
// times that of the wide matrix.
TEST(Muon, RmsOfAnUpdateFollowsTheShape) {
  for (double scale : {1e-3, 1.0}) {
    Params params;
    params.add("tall", ParamRole::kMatrix, {64, 16});
    params.add("wide", ParamRole::kMatrix, {16, 64});
    Optimizer optimizer(muon_config({{&Options::weight_decay, 0.0},
                                     {&Options::newton_schulz, NewtonSchulzKind::kPolarExpress}}),
                        params.list);
    Stream stream;
    params.draw_gradients(1, scale);
    optimizer.step({.lr = 0.02, .wants_stats = true}, 1, stream);
    // Each update has 16 singular values in [0.84, 1.15].
    EXPECT_NEAR(optimizer.stats()[0].update_norm, 0.02 * 2 * 4, 0.16 * 0.02 * 2 * 4);
    EXPECT_NEAR(optimizer.stats()[1].update_norm, 0.02 * 4, 0.16 * 0.02 * 4);
  }
}

// With split_fused, a fused matrix is updated like its slices as separate matrices;
// without it, like one matrix.
TEST(Muon, FusedMatricesAreUpdatedPartByPart) {
  for (const bool splits : {true, false})
    for (const bool is_normuon : {true, false}) {
      const GivenOptions options{{&Options::newton_schulz_dtype, DType::f32},
                                 {&Options::normuon, is_normuon},
                                 {&Options::split_fused, splits}};
      Params fused, parts;
      fused.add("qkv", ParamRole::kMatrix, {24 + 8 + 8, 16});
      fused.list[0].fused_rows = {24, 8, 8};
      for (int64_t rows : {24, 8, 8}) parts.add("part", ParamRole::kMatrix, {rows, 16});
      const Doubles all = to_doubles(fused.list[0].w);
      Optimizer one(muon_config(options), fused.list), three(muon_config(options), parts.list);
      Stream stream;
      size_t first = 0;
      for (OptimParam& p : parts.list) {
        const auto n = static_cast<size_t>(p.elements());
        assign(p.w, Doubles(all.begin() + static_cast<std::ptrdiff_t>(first),
                            all.begin() + static_cast<std::ptrdiff_t>(first + n)));
        first += n;
      }
      for (int t = 1; t <= 2; ++t) {
        fused.draw_gradients(t);
        const Doubles g = to_doubles(fused.list[0].g);
        first = 0;
        for (OptimParam& p : parts.list) {
          const auto n = static_cast<size_t>(p.elements());
          assign(p.g, Doubles(g.begin() + static_cast<std::ptrdiff_t>(first),
                              g.begin() + static_cast<std::ptrdiff_t>(first + n)));
          first += n;
        }
        one.step({.lr = 0.02}, 1, stream);
        three.step({.lr = 0.02}, 1, stream);
      }
      Doubles joined;
      for (const Doubles& part : parts.weights()) joined.insert(joined.end(), part.begin(), part.end());
      EXPECT_EQ(joined == to_doubles(fused.list[0].w), splits);
    }
}

// Decay applies only where the update shrinks the weight. The lr is so small that only
// the sign of the update counts.
TEST(Muon, CautiousDecayLooksAtTheUpdateNotTheGradient) {
  Params plain, cautious;
  for (Params* p : {&plain, &cautious}) p->add("w", ParamRole::kMatrix, {32, 48});
  Optimizer without(muon_config({{&Options::weight_decay, 0.0}}), plain.list);
  Optimizer with(muon_config({{&Options::weight_decay, 0.5}, {&Options::cautious_decay, true}}),
                 cautious.list);
  Stream stream;
  const Doubles before = to_doubles(plain.list[0].w);
  plain.draw_gradients(1);
  cautious.draw_gradients(1);
  without.step({.lr = 0.02}, 1, stream);
  with.step({.lr = 0.02}, 1, stream);
  const Doubles moved = to_doubles(plain.list[0].w), decayed = to_doubles(cautious.list[0].w);
  int64_t decays = 0;
  for (size_t i = 0; i < before.size(); ++i) {
    const bool shrinks = (before[i] - moved[i]) * before[i] >= 0;
    decays += shrinks;
    const double want = moved[i] - (shrinks ? 0.02 * 0.5 * before[i] : 0);
    ASSERT_NEAR(decayed[i], want, 8 * unit_roundoff(DType::f32) * std::max(1.0, std::abs(want)));
  }
  EXPECT_GT(decays, std::ssize(before) / 4);
  EXPECT_LT(decays, std::ssize(before) * 3 / 4);
}

}  // namespace
}  // namespace ingot::test
