#include "ingot/ops/cross_entropy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/reference/cross_entropy.h"
#include "tests/reference/error_of.h"

namespace ingot::test {
namespace {

constexpr LogitCap kCaps[] = {LogitCap::kNone, LogitCap::kTanh, LogitCap::kSigmoid};

CrossEntropyConfig config_of(LogitCap cap, int64_t vocab) {
  switch (cap) {
    case LogitCap::kTanh:
      return {.vocab = vocab, .cap = cap, .cap_a = 15};
    case LogitCap::kSigmoid:
      return {.vocab = vocab, .cap = cap, .cap_a = 23, .cap_b = 5, .cap_c = 7.5f};
    default:
      return {.vocab = vocab};
  }
}

struct CrossEntropyCase {
  DType gradient;
  int64_t N, vocab, padding;
  LogitCap cap;
  float smoothing = 0, z_loss = 0;
};

std::string cross_entropy_case_name(const ::testing::TestParamInfo<CrossEntropyCase>& info) {
  const CrossEntropyCase& c = info.param;
  const char* caps[] = {"none", "tanh", "sigmoid"};
  return fmt::format("{}_{}x{}_pad{}_{}{}{}", name(c.gradient), c.N, c.vocab, c.padding,
                     caps[static_cast<int>(c.cap)], c.smoothing > 0 ? "_smoothed" : "",
                     c.z_loss > 0 ? "_z_loss" : "");
}

class CrossEntropy : public ::testing::TestWithParam<CrossEntropyCase> {
 protected:
  CrossEntropy() {
    for (size_t n = 0; n < ids.size(); ++n)
      ids[n] = n % 5 == 3 ? kIgnoreIndex
                          : static_cast<int32_t>(random_word({.purpose = Purpose::kSample}, n) %
                                                 static_cast<uint32_t>(c.vocab));
    config.grad_scale = 0.25f;
    config.label_smoothing = c.smoothing;
    config.z_loss = c.z_loss;
  }

  CrossEntropyCase c = GetParam();
  int64_t Vp = c.vocab + c.padding;
  Stream stream;
  CrossEntropyConfig config = config_of(c.cap, c.vocab);
  Buffer logits = random_tensor(DType::f32, {c.N, Vp}, 1, 6.0);
  std::vector<int32_t> ids = std::vector<int32_t>(static_cast<size_t>(c.N));
  Tensor targets{ids.data(), DType::i32, {c.N}};
  Buffer losses{DType::f32, {c.N}}, d_logits{c.gradient, {c.N, Vp}};
  std::vector<uint8_t> correct = std::vector<uint8_t>(static_cast<size_t>(c.N), uint8_t{9});
  Tensor is_correct{correct.data(), DType::u8, {c.N}};

  // z is off by a few roundings of 30 (the range of the cap's sum), and so is the loss.
  double tolerance() const { return 4 * 32 * unit_roundoff(DType::f32); }

  // Returns the gradient of grad_scale * sum of losses, by differences of one row at a time.
  Doubles gradient() {
    const Doubles values = to_doubles(logits);
    const size_t width = static_cast<size_t>(Vp);
    Doubles want;
    for (size_t n = 0; n < ids.size(); ++n) {
      const auto at = values.begin() + static_cast<int64_t>(n * width);
      const auto loss = [&](const Doubles& row) {
        return config.grad_scale * cross_entropy_reference(row, {ids[n]}, config)[0];
      };
      const Doubles row = central_differences(loss, Doubles(at, at + static_cast<int64_t>(width)));
      want.insert(want.end(), row.begin(), row.end());
    }
    return want;
  }
};

TEST_P(CrossEntropy, LossMatchesReferenceAndLogitsAreUnchanged) {
  const Doubles before = to_doubles(logits);
  cross_entropy(losses, is_correct, {}, logits, targets, config, stream);
  expect_close(losses, cross_entropy_reference(before, ids, config), tolerance(), "loss");
  EXPECT_EQ(to_doubles(logits), before);
}

TEST_P(CrossEntropy, GradientMatchesCentralDifferences) {
  const Doubles want = gradient(), want_losses = cross_entropy_reference(to_doubles(logits), ids, config);
  cross_entropy(losses, is_correct, d_logits, logits, targets, config, stream);
  expect_close(losses, want_losses, tolerance(), "loss");
  // Each entry is at most grad_scale and as precise as the exponent z; then it is rounded once.
  expect_close(d_logits, want, tolerance() + unit_roundoff(c.gradient) + 1e-8, "d_logits", config.grad_scale);
  const Doubles got = to_doubles(d_logits);
  for (size_t i = 0; i < got.size(); ++i) {
    const bool is_padding = static_cast<int64_t>(i) % Vp >= c.vocab;
    const bool is_ignored = ids[i / static_cast<size_t>(Vp)] == kIgnoreIndex;
    if (is_padding || is_ignored) {
      EXPECT_EQ(got[i], 0.0) << i;
    }
  }
}

TEST_P(CrossEntropy, GradientMayOverwriteTheLogits) {
  if (c.gradient != DType::f32) return;
  Buffer copy(DType::f32, {c.N, Vp});
  assign(copy, to_doubles(logits));
  cross_entropy(losses, {}, d_logits, copy, targets, config, stream);
  cross_entropy(losses, {}, logits, logits, targets, config, stream);
  EXPECT_EQ(to_doubles(logits), to_doubles(d_logits));
}

TEST_P(CrossEntropy, PredictionIsTheFirstOfTheLargestLogits) {
  const Doubles values = to_doubles(logits);
  cross_entropy(losses, is_correct, d_logits, logits, targets, config, stream);
  for (size_t n = 0; n < ids.size(); ++n) {
    const auto row = values.begin() + static_cast<int64_t>(n) * Vp;
    const auto top = std::max_element(row, row + c.vocab) - row;
    EXPECT_EQ(correct[n], ids[n] == top ? 1 : 0) << n;
  }
}

TEST_P(CrossEntropy, HugeLogitsDoNotOverflow) {
  Doubles values = to_doubles(logits);
  for (double& v : values) v = static_cast<float>(v * 1e4 / 6);
  assign(logits, values);
  const Doubles want = cross_entropy_reference(values, ids, config);
  cross_entropy(losses, is_correct, d_logits, logits, targets, config, stream);
  expect_close(losses, want, tolerance(), "loss");
  // z-loss adds 2 z_loss lse times the probability, and no logit exceeds 5e4.
  const double bound = config.grad_scale * (1.0 + 2 * static_cast<double>(config.z_loss) * 5e4);
  for (double v : to_doubles(d_logits)) ASSERT_LE(std::abs(v), bound);
}

std::vector<CrossEntropyCase> cross_entropy_cases() {
  std::vector<CrossEntropyCase> all;
  for (DType gradient : {DType::f32, DType::bf16, DType::f16})
    for (LogitCap cap : kCaps)
      for (int64_t vocab : {1, 31, 32, 33, 257})
        for (int64_t padding : {0, 7}) all.push_back({gradient, 7, vocab, padding, cap});
  all.push_back({DType::f32, 1, 2085, 5, LogitCap::kTanh});  // several blocks
  for (DType gradient : {DType::f32, DType::bf16, DType::f16})
    for (LogitCap cap : kCaps)
      for (float smoothing : {0.0f, 0.1f}) all.push_back({gradient, 7, 67, 7, cap, smoothing, 0.01f});
  all.push_back({DType::f32, 7, 257, 0, LogitCap::kNone, 0.1f, 0});
  return all;
}

INSTANTIATE_TEST_SUITE_P(Sizes, CrossEntropy, ::testing::ValuesIn(cross_entropy_cases()),
                         cross_entropy_case_name);

class CrossEntropyOnce : public ::testing::Test {
 protected:
  static constexpr int64_t kN = 4, kV = 40;
  Stream stream;
  CrossEntropyConfig config{.vocab = kV};
  Buffer logits = random_tensor(DType::f32, {kN, kV}, 1, 10.0), losses{DType::f32, {kN}};
  std::vector<int32_t> ids = {0, 39, 7, 20};
  Tensor targets{ids.data(), DType::i32, {kN}};
  std::vector<uint8_t> correct = std::vector<uint8_t>(kN);
  Tensor is_correct{correct.data(), DType::u8, {kN}};

  std::string error_message() {
    return error_of([&] { cross_entropy(losses, {}, {}, logits, targets, config, stream); });
  }
};

// 30 sigmoid(x / 7.5) = 15 tanh(x / 15) + 15.
TEST_F(CrossEntropyOnce, SigmoidAndTanhFormsAgree) {
  Buffer same(DType::f32, {kN, kV}), sigmoid_losses(DType::f32, {kN});
  assign(same, to_doubles(logits));
  config = {.vocab = kV, .cap = LogitCap::kTanh, .cap_a = 15};
  cross_entropy(losses, {}, logits, logits, targets, config, stream);
  config = {.vocab = kV, .cap = LogitCap::kSigmoid, .cap_a = 30, .cap_b = 0, .cap_c = 7.5f};
  cross_entropy(sigmoid_losses, {}, same, same, targets, config, stream);
  const double rounding = 4 * 30 * unit_roundoff(DType::f32);
  expect_close(sigmoid_losses, to_doubles(losses), rounding, "loss");
  expect_close(same, to_doubles(logits), rounding, "d_logits");
}

TEST_F(CrossEntropyOnce, LossOfAnUnlikelyTargetIsFinite) {
  Doubles values(kN * kV, 0.0);
  values[0] = -1e4;  // p = exp(-10000) underflows; -log(p) would be infinite
  assign(logits, values);
  cross_entropy(losses, {}, {}, logits, targets, config, stream);
  EXPECT_NEAR(to_doubles(losses)[0], 1e4 + std::log(39.0), 1e4 * 2 * unit_roundoff(DType::f32));
}

TEST_F(CrossEntropyOnce, AmongEqualLogitsTheLowestIndexIsPredicted) {
  assign(logits, Doubles(kN * kV, 1.5));
  cross_entropy(losses, is_correct, {}, logits, targets, config, stream);
  EXPECT_THAT(correct, ::testing::ElementsAre(1, 0, 0, 0));
  for (double v : to_doubles(losses)) EXPECT_NEAR(v, std::log(40.0), 1e-6);
}

TEST_F(CrossEntropyOnce, IgnoredTargetsHaveNeitherLossNorGradient) {
  ids = {kIgnoreIndex, kIgnoreIndex, kIgnoreIndex, kIgnoreIndex};
  cross_entropy(losses, is_correct, logits, logits, targets, config, stream);
  EXPECT_EQ(to_doubles(losses), Doubles(kN, 0.0));
  EXPECT_EQ(to_doubles(logits), Doubles(kN * kV, 0.0));
  EXPECT_THAT(correct, ::testing::Each(0));
}

TEST_F(CrossEntropyOnce, PaddingHasNoProbabilityWhateverItContains) {
  config.vocab = 33;
  ids[1] = 32;
  const Doubles before = to_doubles(logits);
  cross_entropy(losses, {}, {}, logits, targets, config, stream);
  const Doubles want = to_doubles(losses);
  Doubles poisoned = before;
  for (size_t i = 0; i < poisoned.size(); ++i)
    if (i % kV >= 33) poisoned[i] = i % 2 ? std::nan("") : 1e30;
  assign(logits, poisoned);
  cross_entropy(losses, {}, logits, logits, targets, config, stream);
  EXPECT_EQ(to_doubles(losses), want);
  for (double v : to_doubles(logits)) EXPECT_TRUE(std::isfinite(v));
}

TEST_F(CrossEntropyOnce, ANonFiniteLogitGivesANonFiniteLoss) {
  for (LogitCap cap : kCaps) {
    config = config_of(cap, kV);
    for (int64_t column : {int64_t{0}, int64_t{17}, kV - 1}) {
      Doubles values(kN * kV, 0.5);
      values[static_cast<size_t>(column)] = std::nan("");
      assign(logits, values);
      cross_entropy(losses, {}, {}, logits, targets, config, stream);
      EXPECT_TRUE(std::isnan(to_doubles(losses)[0])) << column;
      EXPECT_FALSE(std::isnan(to_doubles(losses)[1]));
    }
  }
  Doubles values(kN * kV, 0.5);
  values[3] = std::numeric_limits<double>::infinity();
  config = config_of(LogitCap::kNone, kV);
  assign(logits, values);
  cross_entropy(losses, {}, {}, logits, targets, config, stream);
  EXPECT_TRUE(std::isnan(to_doubles(losses)[0]));
}

TEST_F(CrossEntropyOnce, TargetOutsideTheVocabularyIsAnError) {
  for (int32_t bad : {40, -1, -99}) {
    ids[2] = bad;
    EXPECT_EQ(
        error_message(),
        fmt::format("cross_entropy: target {} at index 2 is outside the vocabulary of 40 (ignored rows are "
                    "marked -100)",
                    bad));
  }
}

TEST_F(CrossEntropyOnce, ErrorsNameTheOperand) {
  config.vocab = 41;
  EXPECT_EQ(error_message(), "cross_entropy: vocab must be in [1, 40], the columns of the logits, got 41");
  config = {.vocab = 40, .cap = LogitCap::kTanh};
  EXPECT_EQ(error_message(), "cross_entropy: cap_a must be positive, got 0");
  config = {.vocab = 40, .cap = LogitCap::kSigmoid, .cap_a = 1, .cap_b = 0, .cap_c = -1};
  EXPECT_EQ(error_message(), "cross_entropy: cap_c must be positive, got -1");
  config = {.vocab = 40};
  targets = Tensor(ids.data(), DType::i32, {kN - 1});
  EXPECT_EQ(error_message(), "cross_entropy: targets must be (4), got (3)");
}

}  // namespace
}  // namespace ingot::test
