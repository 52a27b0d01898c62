// Tests DPO's loss against its formula in double, its weights against central differences of that, and the
// head's gradients with weights of rows against central differences too.
#include "ingot/ops/preference_loss.h"

#include <gtest/gtest.h>

#include "ingot/ops/linear_cross_entropy.h"
#include "tests/reference/cross_entropy.h"

namespace ingot::test {
namespace {

// Two rows of 11 tokens. The first has two pairs, of documents of different lengths, the second a pair and
// padding.
struct Pairs {
  static constexpr int64_t kB = 2, kT = 11, kN = kB * kT;
  std::vector<int32_t> starts = {0, 0, 0, 3, 3, 5, 5, 5, 5, 9, 9, 0, 0, 0, 0, 4, 4, 4, 7, 7, 7, 7};
  std::vector<int32_t> targets;
  Doubles token_losses;
  std::vector<float> losses, reference;
  float beta = 0.3F;
  Buffer out_losses{DType::f32, {kN}}, is_correct{DType::u8, {kN}}, counted{DType::i32, {kN}},
      rewards{DType::f32, {2, kN}}, weights{DType::f32, {kN}};
  Stream stream;

  Pairs() {
    for (int32_t n = 0; n < kN; ++n) {
      const bool is_first = n % kT == starts[static_cast<size_t>(n)], is_padding = n >= kT + 7;
      targets.push_back(is_first || is_padding ? kIgnoreIndex : n % 7);
      token_losses.push_back(targets.back() == kIgnoreIndex ? 0 : 1 + n * 13 % 8 * 0.5);
      reference.push_back(is_first ? -static_cast<float>(n % 5) - 2 : 99.0F);
    }
    losses.assign(token_losses.begin(), token_losses.end());
  }

  PreferenceIn in() {
    return {.losses = Tensor(losses.data(), DType::f32, {kN}),
            .targets = Tensor(targets.data(), DType::i32, {kB, kT}),
            .doc_start = Tensor(starts.data(), DType::i32, {kB, kT}),
            .reference = Tensor(reference.data(), DType::f32, {kB, kT})};
  }
  void run() {
    preference_loss({.losses = out_losses,
                     .is_correct = is_correct,
                     .counted = counted,
                     .rewards = rewards,
                     .weights = weights},
                    in(), beta, stream);
  }
  // The reward of the document that begins at row n.
  double reward(const Doubles& of_tokens, size_t n) const {
    double log_p = 0;
    for (size_t i = n / kT * kT; i < n / kT * kT + kT; ++i)
      if (starts[i] == starts[n] && targets[i] != kIgnoreIndex) log_p -= of_tokens[i];
    return static_cast<double>(beta) * (log_p - static_cast<double>(reference[n]));
  }
  static constexpr size_t kPairs[3][2] = {{0, 3}, {5, 9}, {11, 15}};
  double loss(const Doubles& of_tokens, size_t pair) const {
    return -std::log(1 /
                     (1 + std::exp(reward(of_tokens, kPairs[pair][1]) - reward(of_tokens, kPairs[pair][0]))));
  }
  double total(const Doubles& of_tokens) const {
    return loss(of_tokens, 0) + loss(of_tokens, 1) + loss(of_tokens, 2);
  }
};

TEST(PreferenceLoss, IsItsFormulaAtTheFirstTokenOfEachPair) {
  Pairs pairs;
  pairs.run();
  Doubles losses(Pairs::kN), chosen(Pairs::kN), rejected(Pairs::kN);
  for (size_t pair = 0; pair < 3; ++pair) {
    const auto [first, second] = Pairs::kPairs[pair];
    losses[first] = pairs.loss(pairs.token_losses, pair);
    chosen[first] = pairs.reward(pairs.token_losses, first);
    rejected[first] = pairs.reward(pairs.token_losses, second);
    EXPECT_EQ(pairs.is_correct.tensor().as<uint8_t>()[first], chosen[first] > rejected[first]) << pair;
  }
  const double tolerance = 8 * unit_roundoff(DType::f32);
  expect_close(pairs.out_losses, losses, tolerance, "losses");
  expect_close(pairs.rewards.tensor().rows(0, 1), chosen, tolerance, "chosen");
  expect_close(pairs.rewards.tensor().rows(1, 2), rejected, tolerance, "rejected");
  for (size_t n = 0; n < Pairs::kN; ++n) {
    const bool counts = n == 0 || n == 5 || n == 11;
    EXPECT_EQ(pairs.counted.tensor().as<int32_t>()[n], counts ? 0 : kIgnoreIndex) << n;
  }
}

TEST(PreferenceLoss, WeightsAreTheDerivativesByTheTokensLosses) {
  Pairs pairs;
  pairs.run();
  Doubles want =
      central_differences([&](const Doubles& losses) { return pairs.total(losses); }, pairs.token_losses);
  Doubles got = to_doubles(pairs.weights);
  for (size_t n = 0; n < Pairs::kN; ++n) {
    if (pairs.targets[n] == kIgnoreIndex) continue;  // its gradient is 0 whatever the weight
    EXPECT_NEAR(got[n], want[n], 1e-7) << n;
    EXPECT_NE(got[n], 0) << n;
  }
}

TEST(PreferenceLoss, IsFiniteForRewardsFarApart) {
  Pairs pairs;
  pairs.beta = 500;
  pairs.run();
  for (size_t n = 0; n < Pairs::kN; ++n) {
    EXPECT_TRUE(std::isfinite(element(pairs.out_losses, n)));
    EXPECT_TRUE(std::isfinite(element(pairs.weights, n)));
  }
  for (const auto& [chosen, rejected] : Pairs::kPairs) {
    const double margin =
        pairs.reward(pairs.token_losses, chosen) - pairs.reward(pairs.token_losses, rejected);
    EXPECT_GT(std::abs(margin), 100);
    EXPECT_NEAR(element(pairs.out_losses, chosen), std::max(0.0, -margin), 1e-3);
  }
}

// Every kind of head multiplies the gradient of each row by its weight, also where logits lie in tiles or
// chunks.
TEST(RowWeights, ScaleTheGradientOfEachRowOfTheHead) {
  constexpr int64_t kN = 7, kC = 5, kV = 13, kVp = 16;
  std::vector<int32_t> targets;
  for (int32_t n = 0; n < kN; ++n) targets.push_back(n == 2 ? kIgnoreIndex : n * 5 % kV);
  Doubles row_weights = {0.5, -2, 3, 0, 1.25, -0.125, 4};  // exact in bf16
  for (const HeadKind kind : {HeadKind::kDense, HeadKind::kChunked, HeadKind::kRecompute})
    for (const HeadPrecision precision : {HeadPrecision::kF32, HeadPrecision::kBf16}) {
      const DType dtype = precision == HeadPrecision::kF32 ? DType::f32 : DType::bf16;
      const Buffer x = random_tensor(dtype, {kN, kC}, 1), w = random_tensor(dtype, {kVp, kC}, 2);
      const Buffer dx(dtype, {kN, kC}), dw = zeros(DType::f32, {kVp, kC}), losses(DType::f32, {kN});
      const Buffer weights(DType::f32, {kN});
      assign(weights, row_weights);
      LinearCrossEntropyConfig config;
      config.kind = kind;
      config.precision = precision;
      config.chunk_tokens = 3;
      config.tile_columns = 6;
      config.loss.vocab = kV;
      config.loss.grad_scale = 0.5F;
      Arena plan("plan");
      make_linear_cross_entropy_scratch(plan, kN, kC, kVp, config, true);
      Arena arena("scratch", plan.peak_bytes());
      const auto scratch = make_linear_cross_entropy_scratch(arena, kN, kC, kVp, config, true);
      Stream stream;
      linear_cross_entropy(
          {.losses = losses, .is_correct = {}, .dx = dx, .dw = dw},
          {.x = x, .w = w, .targets = Tensor(targets.data(), DType::i32, {kN}), .row_weights = weights},
          config, scratch, stream);
      const auto objective = [&](const Doubles& xs, const Doubles& ws) {
        Doubles logits(kN * kVp);
        for (size_t n = 0; n < kN; ++n)
          for (size_t v = 0; v < kVp; ++v)
            for (size_t c = 0; c < kC; ++c) logits[n * kVp + v] += xs[n * kC + c] * ws[v * kC + c];
        return 0.5 * dot(row_weights, cross_entropy_reference(logits, targets, config.loss));
      };
      const Doubles xs = to_doubles(x), ws = to_doubles(w);
      const double tolerance = dtype == DType::f32 ? 2e-6 : 6 * unit_roundoff(dtype);
      const std::string what = fmt::format("kind {} {}", static_cast<int>(kind), name(dtype));
      expect_close(dx, central_differences([&](const Doubles& v) { return objective(v, ws); }, xs), tolerance,
                   what + " dx");
      expect_close(dw, central_differences([&](const Doubles& v) { return objective(xs, v); }, ws), tolerance,
                   what + " dw");
    }
}

}  // namespace
}  // namespace ingot::test
