#include "ingot/data/sampler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <vector>

#include "tests/reference/error_of.h"

namespace ingot::test {
namespace {

// Returns the mean plus 6 standard deviations of a chi-square statistic with `freedom` degrees of
// freedom. With some 100 degrees of freedom, chance exceeds it with a probability below 1e-6.
double chi_square_limit(double freedom) { return freedom + 6 * std::sqrt(2 * freedom); }

double chi_square(const std::vector<int>& counts, double expected) {
  double sum = 0;
  for (const int count : counts) sum += (count - expected) * (count - expected) / expected;
  return sum;
}

TEST(SamplerRandom, StartsAreUniformOverExactlyTheWindowsThatFit) {
  constexpr int64_t kTokens = 107, kContext = 7, kSamples = 100'000;
  const Sampler sampler(SampleOrder::kRandom, 42, kTokens, kContext);
  std::vector<int> counts(kTokens - kContext);
  for (int64_t i = 0; i < kSamples; ++i) ++counts.at(static_cast<size_t>(sampler.start(i)));
  EXPECT_GT(*std::min_element(counts.begin(), counts.end()), 0);  // first and last start included
  EXPECT_LT(chi_square(counts, double{kSamples} / (kTokens - kContext)),
            chi_square_limit(kTokens - kContext - 1));
}

TEST(SamplerRandom, NeighbouringSamplesAreIndependent) {
  constexpr int64_t kSide = 10, kSamples = 100'000;
  const Sampler sampler(SampleOrder::kRandom, 7, kSide + 4, 4);
  std::vector<int> counts(kSide * kSide);
  for (int64_t i = 0; i < kSamples; ++i)
    ++counts.at(static_cast<size_t>(sampler.start(2 * i) * kSide + sampler.start(2 * i + 1)));
  EXPECT_LT(chi_square(counts, double{kSamples} / (kSide * kSide)), chi_square_limit(kSide * kSide - 1));
}

TEST(SamplerEpochs, EveryEpochVisitsEachOfItsAdjacentWindowsOnce) {
  for (const int64_t context : {1, 3, 8}) {
    for (const int64_t tokens :
         {context + 1, 2 * context + 1, 3 * context + 2, int64_t{29}, int64_t{1000}, int64_t{4097}}) {
      const Sampler sampler(SampleOrder::kEpochs, 5, tokens, context);
      const int64_t windows = sampler.windows_per_epoch();
      EXPECT_EQ(windows, std::max<int64_t>(1, (tokens - 1) / context - 1));
      for (int64_t epoch = 0; epoch < 3; ++epoch) {
        std::set<int64_t> starts;
        for (int64_t i = 0; i < windows; ++i) starts.insert(sampler.start(epoch * windows + i));
        ASSERT_EQ(static_cast<int64_t>(starts.size()), windows) << "repeated: tokens " << tokens;
        ASSERT_GE(*starts.begin(), 0);
        ASSERT_LE(*starts.rbegin() + context, tokens - 1);
        ASSERT_EQ(*starts.rbegin() - *starts.begin(), (windows - 1) * context)
            << "windows are not side by side";
        for (const int64_t start : starts) ASSERT_EQ((start - *starts.begin()) % context, 0);
      }
    }
  }
}

TEST(SamplerEpochs, EpochsDifferInOrderAndOffset) {
  const Sampler sampler(SampleOrder::kEpochs, 1, 10'000, 10);
  const int64_t windows = sampler.windows_per_epoch();
  std::set<int64_t> offsets;
  int64_t same_place = 0;
  for (int64_t epoch = 0; epoch < 40; ++epoch) {
    int64_t first = sampler.start(epoch * windows);
    for (int64_t i = 1; i < windows; ++i) first = std::min(first, sampler.start(epoch * windows + i));
    offsets.insert(first);
  }
  for (int64_t i = 0; i < windows; ++i)
    same_place += (sampler.start(i) / 10 == sampler.start(windows + i) / 10) ? 1 : 0;
  EXPECT_GT(offsets.size(), 8u);  // 20 are possible; 40 draws miss a given one with probability 0.13
  EXPECT_LT(same_place, 12);      // two random orders agree in about 1 place
}

TEST(SamplerEpochs, EveryWindowIsEquallyLikelyAtEveryPlace) {
  constexpr int64_t kWindows = 11, kEpochs = 20'000;
  const Sampler sampler(SampleOrder::kEpochs, 3, kWindows + 2, 1);
  ASSERT_EQ(sampler.windows_per_epoch(), kWindows);
  std::vector<int> counts(kWindows * kWindows);  // [place][window]; an offset shifts a whole epoch
  for (int64_t epoch = 0; epoch < kEpochs; ++epoch) {
    std::vector<int64_t> starts;
    for (int64_t p = 0; p < kWindows; ++p) starts.push_back(sampler.start(epoch * kWindows + p));
    const int64_t first = *std::min_element(starts.begin(), starts.end());
    for (int64_t p = 0; p < kWindows; ++p)
      ++counts.at(static_cast<size_t>(p * kWindows + starts[static_cast<size_t>(p)] - first));
  }
  EXPECT_LT(chi_square(counts, double{kEpochs} / kWindows),
            chi_square_limit((kWindows - 1) * (kWindows - 1)));
}

TEST(Sampler, IsAPureFunctionOfSeedAndSample) {
  for (const SampleOrder order : {SampleOrder::kRandom, SampleOrder::kEpochs}) {
    const Sampler a(order, 9, 5000, 16), b(order, 9, 5000, 16), other(order, 10, 5000, 16);
    std::vector<int64_t> ascending;
    for (int64_t i = 0; i < 2000; ++i) ascending.push_back(a.start(i));
    int64_t same = 0;
    for (int64_t i = 1999; i >= 0; --i) {  // the result does not depend on earlier calls
      ASSERT_EQ(b.start(i), ascending[static_cast<size_t>(i)]);
      same += other.start(i) == ascending[static_cast<size_t>(i)] ? 1 : 0;
    }
    EXPECT_LT(same, 40) << "the seed has no effect";
  }
}

TEST(Sampler, KnownStartsDoNotChange) {
  // The values come from golden/data/sampler_golden.py. Resumed runs depend on them: if they change, the
  // data position in every existing checkpoint becomes wrong.
  const Sampler random(SampleOrder::kRandom, 1337, 1'003'854, 64),
      epochs(SampleOrder::kEpochs, 1337, 1'003'854, 64);
  std::vector<int64_t> got;
  for (const int64_t i : {int64_t{0}, int64_t{1}, int64_t{1'000'000'007}}) {
    got.push_back(random.start(i));
    got.push_back(epochs.start(i));
  }
  EXPECT_EQ(got, (std::vector<int64_t>{400878, 586465, 976825, 420129, 274532, 562062}));
}

TEST(Sampler, HandlesStreamsBeyond32Bits) {
  const int64_t tokens = int64_t{3} << 40;
  for (const SampleOrder order : {SampleOrder::kRandom, SampleOrder::kEpochs}) {
    const Sampler sampler(order, 2, tokens, 1024);
    int64_t above = 0;
    for (int64_t i = 0; i < 2000; ++i) {
      const int64_t start = sampler.start(i + (int64_t{1} << 40));
      ASSERT_GE(start, 0);
      ASSERT_LE(start + 1024, tokens - 1);
      above += start > tokens / 2 ? 1 : 0;
    }
    EXPECT_NEAR(above, 1000, 6 * std::sqrt(500.0));
  }
}

TEST(Sampler, TextShorterThanOneWindowIsADataError) {
  EXPECT_EQ(data_error([&] { Sampler(SampleOrder::kRandom, 1, 64, 64); }),
            "the text has 64 tokens, one window of context 64 needs 65; give more text or a shorter context");
  EXPECT_EQ(Sampler(SampleOrder::kRandom, 1, 65, 64).start(12), 0);
  EXPECT_EQ(Sampler(SampleOrder::kEpochs, 1, 65, 64).start(12), 0);
}

}  // namespace
}  // namespace ingot::test
