#include "ingot/ops/linear_cross_entropy.h"

#include <gtest/gtest.h>

#include "tests/reference/numeric.h"

namespace ingot::testing {
namespace {

// Mean-free sum of losses in double, straight from the definition; padding columns left out.
double reference_loss(const Doubles& x, const Doubles& w, const std::vector<int32_t>& targets, size_t C,
                      size_t V) {
  double total = 0;
  for (size_t n = 0; n < targets.size(); ++n) {
    if (targets[n] == kIgnoreIndex) continue;
    Doubles z(V);
    double sum = 0;
    for (size_t v = 0; v < V; ++v) {
      for (size_t c = 0; c < C; ++c) z[v] += x[n * C + c] * w[v * C + c];
      sum += std::exp(z[v]);
    }
    total += std::log(sum) - z[static_cast<size_t>(targets[n])];
  }
  return total;
}

class LinearCrossEntropy : public ::testing::TestWithParam<std::tuple<DType, int64_t>> {};

TEST_P(LinearCrossEntropy, LossAndGradientsWhateverTheChunk) {
  const auto [dtype, chunk] = GetParam();
  const int64_t N = 13, C = 9, V = 21, Vp = 24;
  Stream stream;
  Buffer x = random_tensor(dtype, {N, C}, 1), w = random_tensor(dtype, {Vp, C}, 2, 0.5);
  std::vector<int32_t> targets;
  for (int32_t n = 0; n < N; ++n) targets.push_back(n % 4 == 1 ? kIgnoreIndex : (5 * n) % 21);
  Buffer losses(DType::f32, {N}), logits(DType::f32, {chunk, Vp}), d_logits(DType::bf16, {chunk, Vp});
  Buffer dx(dtype, {N, C}), dw = random_tensor(DType::f32, {Vp, C}, 3);
  std::vector<uint8_t> correct(N);
  const Doubles dw_before = to_doubles(dw);
  const CrossEntropyConfig config{.vocab = V, .grad_scale = 0.25f};
  const LinearCrossEntropyGrads grads{dx, dw};
  linear_cross_entropy(losses, Tensor(correct.data(), DType::u8, {N}), &grads, x, w,
                       Tensor(targets.data(), DType::i32, {N}), config, logits,
                       dtype == DType::bf16 ? d_logits.tensor() : Tensor{}, stream);
  const Doubles xs = to_doubles(x), ws = to_doubles(w);
  double total = 0;
  for (double l : to_doubles(losses)) total += l;
  EXPECT_NEAR(total, reference_loss(xs, ws, targets, C, V), 1e-4);

  const double tolerance = 8 * unit_roundoff(dtype);
  Doubles want_dx =
      central_differences([&](const Doubles& v) { return reference_loss(v, ws, targets, C, V); }, xs);
  for (double& d : want_dx) d *= 0.25;
  expect_close(dx, want_dx, tolerance + 1e-6, "dx", 1.0);
  Doubles want_dw =
      central_differences([&](const Doubles& v) { return reference_loss(xs, v, targets, C, V); }, ws);
  for (size_t i = 0; i < want_dw.size(); ++i) want_dw[i] = 0.25 * want_dw[i] + dw_before[i];
  expect_close(dw, want_dw, tolerance + 1e-6, "dw", 2.0);
}

INSTANTIATE_TEST_SUITE_P(Chunks, LinearCrossEntropy,
                         ::testing::Combine(::testing::Values(DType::f32, DType::bf16),
                                            ::testing::Values(1, 5, 13, 40)));

}  // namespace
}  // namespace ingot::testing
