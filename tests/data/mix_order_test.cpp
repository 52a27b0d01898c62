#include "ingot/data/mix_order.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "ingot/data/sampler.h"
#include "tests/reference/error_of.h"

namespace ingot::test {
namespace {
using ::testing::HasSubstr;

const std::vector<std::vector<double>> kWeights = {{1},
                                                   {0.7, 0.3},
                                                   {3, 1},
                                                   {1, 1, 1},
                                                   {1, 2, 3, 5, 7},
                                                   {0.5, 0.25, 0.125, 0.125},
                                                   {1, 1e-4},
                                                   {std::sqrt(2.0), std::sqrt(3.0), 1},
                                                   {1e300, 1e300, 1e299},
                                                   {1e-300, 3e-300},
                                                   std::vector<double>(100, 0.01)};

TEST(MixOrder, EveryPrefixHasItsSharesWithinOneSample) {
  for (const std::vector<double>& weights : kWeights) {
    const MixOrder mix(weights);
    const int64_t period = mix.period(), steps = std::min<int64_t>(3 * period, 100'000);
    std::vector<int64_t> taken(weights.size(), 0);
    for (int64_t n = 0; n < steps; ++n) {
      const MixOrder::Place place = mix.place(n);
      ASSERT_EQ(place.number, taken.at(static_cast<size_t>(place.source))++) << "sample " << n;
      for (size_t i = 0; i < weights.size(); ++i) {
        const double share =
            static_cast<double>(mix.count(static_cast<int64_t>(i))) / static_cast<double>(period);
        ASSERT_LT(std::abs(static_cast<double>(taken[i]) - share * static_cast<double>(n + 1)), 1)
            << weights.size() << " weights, source " << i << ", sample " << n;
      }
    }
    for (size_t i = 0; i < weights.size(); ++i)
      EXPECT_EQ(mix.taken(static_cast<int64_t>(i), steps), taken[i]);
  }
}

TEST(MixOrder, SharesAreTheWeights) {
  for (const std::vector<double>& weights : kWeights) {
    const MixOrder mix(weights);
    double sum = 0;
    for (const double weight : weights) sum += weight / weights[0];
    int64_t all = 0;
    for (size_t i = 0; i < weights.size(); ++i) {
      const int64_t count = mix.count(static_cast<int64_t>(i));
      all += count;
      EXPECT_LT(std::abs(static_cast<double>(count) -
                         weights[i] / weights[0] / sum * static_cast<double>(mix.period())),
                1.01);
    }
    EXPECT_EQ(all, mix.period());
  }
  EXPECT_EQ(MixOrder(std::vector{0.7, 0.3}).period(), 10);
  EXPECT_EQ(MixOrder(std::vector{1.0, 2.0, 3.0}).period(), 6);
  EXPECT_EQ(MixOrder(std::vector{0.333, 0.667}).period(), 1000);
  EXPECT_EQ(MixOrder(std::vector{std::sqrt(2.0), 1.0}).period(), MixOrder::kMaxSamples);
}

// Samples beyond 2^31, as in a run of many tokens.
TEST(MixOrder, GoesOnForever) {
  const MixOrder mix(std::vector{3.0, 1.0});
  const int64_t far = (int64_t{1} << 40) + 2;
  EXPECT_EQ(mix.taken(0, far) + mix.taken(1, far), far);
  const MixOrder::Place place = mix.place(far);
  EXPECT_EQ(place.number, mix.taken(place.source, far));
}

TEST(MixOrder, BadWeightsAreNamed) {
  const auto weights_error = [](const std::vector<double>& weights) {
    return error_of([&] { MixOrder{weights}; });
  };
  EXPECT_THAT(weights_error({}), HasSubstr("1 to 1024 sources, got 0"));
  EXPECT_THAT(weights_error(std::vector<double>(1025, 1)), HasSubstr("got 1025"));
  EXPECT_THAT(weights_error({1, 0}), HasSubstr("above 0, got 0; leave the source out"));
  EXPECT_THAT(weights_error({1, -2.5}), HasSubstr("got -2.5"));
  EXPECT_THAT(weights_error({1, std::nan("")}), HasSubstr("got nan"));
  EXPECT_THAT(weights_error({1, std::numeric_limits<double>::infinity()}), HasSubstr("got inf"));
  EXPECT_THAT(weights_error({1, 1e-5}), HasSubstr("1e-05 is less than 1/65536"));
  EXPECT_EQ(weights_error({1, 2e-5}), "no error");
}

TEST(MixedSampler, OneSourceOfAnyWeightHasTheOrderOfAPlainStream) {
  for (const SampleOrder order : {SampleOrder::kRandom, SampleOrder::kEpochs}) {
    const Sampler plain(order, 7, 501, 4);
    const Sampler mixed(order, 7, std::vector{Sampler::Source{.tokens = 501, .weight = 0.25}}, 4);
    for (int64_t i = 0; i < 400; ++i) ASSERT_EQ(mixed.start(i), plain.start(i));
  }
}

TEST(MixedSampler, WindowsStayInTheirSource) {
  const std::vector<Sampler::Source> sources = {{40, 3}, {9, 1}, {1000, 2}};
  for (const SampleOrder order : {SampleOrder::kRandom, SampleOrder::kEpochs}) {
    const Sampler sampler(order, 3, sources, 8);
    std::vector<int64_t> seen(3, 0);
    for (int64_t i = 0; i < 6000; ++i) {
      const auto source = static_cast<size_t>(sampler.mix().place(i).source);
      const int64_t begin = source == 0 ? 0 : source == 1 ? 40 : 49, end = begin + sources[source].tokens;
      ASSERT_GE(sampler.start(i), begin);
      ASSERT_LE(sampler.start(i) + 8, end - 1);
      ++seen[source];
    }
    EXPECT_EQ(seen, (std::vector<int64_t>{3000, 1000, 2000}));
  }
}

TEST(MixedSampler, EverySourceHasEpochsOfItsOwn) {
  const std::vector<Sampler::Source> sources = {{101, 1}, {41, 1}};
  const Sampler sampler(SampleOrder::kEpochs, 3, sources, 10);
  for (int64_t source : {0, 1}) {
    const int64_t windows = sampler.windows_per_epoch(source);
    std::vector<int> visits(200, 0);
    for (int64_t i = 0, seen = 0; seen < windows; ++i)
      if (sampler.mix().place(i).source == source) ++seen, ++visits.at(static_cast<size_t>(sampler.start(i)));
    EXPECT_EQ(std::accumulate(visits.begin(), visits.end(), 0), windows);
    EXPECT_EQ(*std::max_element(visits.begin(), visits.end()), 1) << "a window came twice in an epoch";
  }
}

// Two sources of the same size must not take the same windows in step.
TEST(MixedSampler, SourcesHaveDifferentRandomNumbers) {
  const std::vector<Sampler::Source> sources = {{10'000, 1}, {10'000, 1}};
  for (const SampleOrder order : {SampleOrder::kRandom, SampleOrder::kEpochs}) {
    const Sampler sampler(order, 3, sources, 4);
    int same = 0;
    for (int64_t i = 0; i < 1000; i += 2) {
      const int64_t a = sampler.start(i), b = sampler.start(i + 1);
      same += a % 10'000 == b % 10'000;
    }
    EXPECT_LT(same, 5);
  }
}

TEST(MixedSampler, ASourceWithoutAWindowIsNamed) {
  const std::vector<Sampler::Source> sources = {{100, 1}, {8, 1}};
  EXPECT_THAT(data_error([&] { Sampler(SampleOrder::kRandom, 1, sources, 8); }),
              HasSubstr("source 2 of the mixture has 8 tokens"));
}

}  // namespace
}  // namespace ingot::test
