#include "ingot/ops/sample.h"

#include <gtest/gtest.h>

#include <set>

#include "tests/reference/error_of.h"
#include "tests/reference/numeric.h"

namespace ingot::test {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

struct Sampler {
  std::vector<float> logits;
  SampleConfig config;
  int64_t vocab = static_cast<int64_t>(logits.size());
  std::vector<int32_t> ids = std::vector<int32_t>(logits.size());

  int32_t draw(uint64_t step) {
    const Tensor values(logits.data(), DType::f32, {static_cast<int64_t>(logits.size())});
    const Tensor scratch(ids.data(), DType::i32, {static_cast<int64_t>(ids.size())});
    return sample_token(values, vocab, config, {.seed = 7, .purpose = Purpose::kSample, .step = step},
                        scratch);
  }
  std::vector<int64_t> counts(int64_t draws) {
    std::vector<int64_t> seen(logits.size());
    for (int64_t i = 0; i < draws; ++i) ++seen[static_cast<size_t>(draw(static_cast<uint64_t>(i)))];
    return seen;
  }
  std::set<int32_t> support(int64_t draws) {
    std::set<int32_t> seen;
    for (int64_t i = 0; i < draws; ++i) seen.insert(draw(static_cast<uint64_t>(i)));
    return seen;
  }
};

// Returns Pearson's statistic of counts against probabilities; its mean is k - 1 and its variance 2 (k - 1).
double chi_square(const std::vector<int64_t>& counts, const Doubles& probabilities) {
  int64_t draws = 0;
  for (int64_t count : counts) draws += count;
  double statistic = 0;
  for (size_t i = 0; i < counts.size(); ++i) {
    if (probabilities[i] == 0) {
      EXPECT_EQ(counts[i], 0) << i;
      continue;
    }
    const double expected = probabilities[i] * static_cast<double>(draws);
    statistic +=
        (static_cast<double>(counts[i]) - expected) * (static_cast<double>(counts[i]) - expected) / expected;
  }
  return statistic;
}

void expect_distribution(Sampler sampler, const Doubles& probabilities) {
  double cells = -1;
  for (double p : probabilities) cells += p > 0;
  // The bound is five standard deviations; the seed is fixed, so the test passes always or never.
  EXPECT_LE(chi_square(sampler.counts(20000), probabilities), cells + 5 * std::sqrt(2 * cells));
}

Doubles softmax(const std::vector<float>& logits, double temperature, const std::set<int32_t>& kept) {
  Doubles p(logits.size());
  double sum = 0;
  for (int32_t id : kept)
    sum += p[static_cast<size_t>(id)] = std::exp(logits[static_cast<size_t>(id)] / temperature);
  for (double& value : p) value /= sum;
  return p;
}

const std::vector<float> kLogits = {0.5f, -1.0f, 2.0f, 0.0f, 1.0f, 2.0f, -3.0f};
const std::set<int32_t> kAll = {0, 1, 2, 3, 4, 5, 6};

TEST(Sample, FollowsTheSoftmax) {
  expect_distribution({kLogits, {}}, softmax(kLogits, 1, kAll));
  expect_distribution({kLogits, {.temperature = 0.5f}}, softmax(kLogits, 0.5, kAll));
  expect_distribution({kLogits, {.temperature = 3.0f}}, softmax(kLogits, 3, kAll));
}

TEST(Sample, TopKKeepsExactlyK) {
  expect_distribution({kLogits, {.top_k = 1}}, softmax(kLogits, 1, {2}));
  expect_distribution({kLogits, {.top_k = 3}}, softmax(kLogits, 1, {2, 5, 4}));
  expect_distribution({kLogits, {.temperature = 2.0f, .top_k = 4}}, softmax(kLogits, 2, {2, 5, 4, 0}));
  expect_distribution({kLogits, {.top_k = 100}}, softmax(kLogits, 1, kAll));
}

TEST(Sample, TopPKeepsTheFewestTokensThatReachP) {
  const std::vector<float> logits = {std::log(0.1f), std::log(0.4f), std::log(0.05f), std::log(0.25f),
                                     std::log(0.2f)};
  const auto kept = [&](float top_p, int64_t top_k = 0) {
    return Sampler{logits, {.top_k = top_k, .top_p = top_p}}.support(3000);
  };
  EXPECT_EQ(kept(0.01f), (std::set<int32_t>{1}));
  EXPECT_EQ(kept(0.39f), (std::set<int32_t>{1}));
  EXPECT_EQ(kept(0.41f), (std::set<int32_t>{1, 3}));
  EXPECT_EQ(kept(0.64f), (std::set<int32_t>{1, 3}));
  EXPECT_EQ(kept(0.66f), (std::set<int32_t>{1, 3, 4}));
  EXPECT_EQ(kept(0.94f), (std::set<int32_t>{1, 3, 4, 0}));
  EXPECT_EQ(kept(0.96f), (std::set<int32_t>{1, 3, 4, 0, 2}));
  // The three highest tokens have 0.85 together; of these, 0.4 is 47 % and 0.65 is 76 %.
  EXPECT_EQ(kept(0.46f, 3), (std::set<int32_t>{1}));
  EXPECT_EQ(kept(0.75f, 3), (std::set<int32_t>{1, 3}));
  EXPECT_EQ(kept(0.78f, 3), (std::set<int32_t>{1, 3, 4}));
  // Two of four equal tokens reach one half exactly, and the sampler keeps the lowest ids.
  EXPECT_EQ((Sampler{{3, 3, 3, 3}, {.top_p = 0.5f}}.support(500)), (std::set<int32_t>{0, 1}));
  EXPECT_EQ((Sampler{{3, 3, 3, 3}, {.top_k = 4, .top_p = 0.5f}}.support(500)), (std::set<int32_t>{0, 1}));
  expect_distribution({logits, {.top_p = 0.66f}}, softmax(logits, 1, {1, 3, 4}));
}

TEST(Sample, TemperatureZeroPicksTheHighestLogitAndOfEqualOnesTheLowestId) {
  EXPECT_EQ((Sampler{kLogits, {.temperature = 0}}.support(50)), (std::set<int32_t>{2}));
}

TEST(Sample, PaddingGetsNoProbability) {
  std::vector<float> logits = {0, 0, 0, 9, std::nanf("")};
  for (const SampleConfig& config : {SampleConfig{}, SampleConfig{.temperature = 0},
                                     SampleConfig{.top_p = 0.99f}, SampleConfig{.top_k = 5}}) {
    Sampler sampler{logits, config};
    sampler.vocab = 3;
    for (int32_t id : sampler.support(200)) EXPECT_LT(id, 3);
  }
}

TEST(Sample, ALogitOfMinusInfinityIsNeverSampled) {
  const std::vector<float> logits = {-kInf, 1, -kInf, 1, -kInf};
  for (const SampleConfig& config :
       {SampleConfig{}, SampleConfig{.temperature = 0.01f}, SampleConfig{.top_k = 4},
        SampleConfig{.top_p = 1.0f}, SampleConfig{.top_p = 0.9999f}})
    EXPECT_EQ((Sampler{logits, config}.support(500)), (std::set<int32_t>{1, 3}));
}

TEST(Sample, IsAFunctionOfItsKey) {
  std::vector<float> logits(1000, 0.0f);
  Sampler sampler{logits, {}};
  EXPECT_EQ(sampler.draw(3), sampler.draw(3));
  EXPECT_GT(sampler.support(100).size(), 80u);
}

TEST(Sample, ExtremeLogitsDoNotOverflow) {
  EXPECT_EQ((Sampler{{3e38f, -3e38f, 3e38f}, {}}.support(100)), (std::set<int32_t>{0, 2}));
  EXPECT_EQ((Sampler{{88.0f, 100.0f}, {.temperature = 1e-30f}}.support(20)), (std::set<int32_t>{1}));
}

void expect_failure(Sampler sampler, ErrorKind kind, const std::string& text) {
  EXPECT_EQ(error_of([&] { sampler.draw(0); }, kind), text);
}

TEST(SampleErrors, SayWhatIsWrong) {
  expect_failure({{0, 1, std::nanf("")}, {}}, ErrorKind::kNumerics, "sample_token: logit of token 2 is nan");
  expect_failure({{std::nanf(""), 1}, {.temperature = 0}}, ErrorKind::kNumerics,
                 "sample_token: logit of token 0 is nan");
  expect_failure({{0, kInf}, {.top_k = 1}}, ErrorKind::kNumerics, "sample_token: logit of token 1 is inf");
  expect_failure({{-kInf, -kInf}, {}}, ErrorKind::kNumerics, "sample_token: all 2 logits are -inf");
  expect_failure({{0}, {.temperature = -1}}, ErrorKind::kUsage, "temperature must be 0 or more, got -1");
  expect_failure({{0}, {.top_k = -1}}, ErrorKind::kUsage, "top-k must be 0 (no limit) or more, got -1");
  expect_failure({{0}, {.top_p = 0}}, ErrorKind::kUsage, "top-p must be above 0 and at most 1, got 0");
}

}  // namespace
}  // namespace ingot::test
