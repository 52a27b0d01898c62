#include "ingot/data/mix_order.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "ingot/core/error.h"

namespace ingot {
namespace {

// Returns the samples of each source in a period of this length if the shares are whole numbers of samples;
// otherwise it returns none.
std::vector<int64_t> whole_counts(std::span<const double> shares, int64_t period) {
  constexpr double kClose = 1e-9;  // in samples; it is far above the rounding of a share times a period
  std::vector<int64_t> counts;
  for (const double share : shares) {
    const double exact = share * static_cast<double>(period), nearest = std::round(exact);
    if (nearest < 1 || std::abs(exact - nearest) > kClose) return {};
    counts.push_back(static_cast<int64_t>(nearest));
  }
  return std::accumulate(counts.begin(), counts.end(), int64_t{0}) == period ? counts
                                                                             : std::vector<int64_t>{};
}

// Rounds the shares to samples of the longest period: first down, but to at least 1, then up where most is
// missing.
std::vector<int64_t> rounded_counts(std::span<const double> shares) {
  constexpr int64_t kPeriod = MixOrder::kMaxSamples;
  std::vector<int64_t> counts;
  for (const double share : shares)
    counts.push_back(std::max<int64_t>(1, static_cast<int64_t>(share * static_cast<double>(kPeriod))));
  const auto missing = [&](size_t i) {
    return shares[i] * static_cast<double>(kPeriod) - static_cast<double>(counts[i]);
  };
  std::vector<size_t> order(counts.size());
  std::iota(order.begin(), order.end(), size_t{0});
  for (int64_t left = kPeriod - std::accumulate(counts.begin(), counts.end(), int64_t{0}); left != 0;) {
    const auto by_missing = [&](size_t a, size_t b) { return missing(a) < missing(b); };
    if (left > 0) {
      ++counts[*std::ranges::max_element(order, by_missing)];
      --left;
    } else {  // sources that were raised to 1 take it from those that have most too many
      const auto has_most = [&](size_t a, size_t b) {
        return (counts[a] > 1) != (counts[b] > 1) ? counts[a] > 1 : missing(a) < missing(b);
      };
      --counts[*std::ranges::min_element(order, has_most)];
      ++left;
    }
  }
  return counts;
}

std::vector<int64_t> counts_of(std::span<const double> weights) {
  if (weights.empty() || static_cast<int64_t>(weights.size()) > MixOrder::kMaxSources)
    fail(ErrorKind::kUsage, "a mixture must have 1 to {} sources, got {}", MixOrder::kMaxSources,
         weights.size());
  for (const double weight : weights)
    if (!std::isfinite(weight) || weight <= 0)
      fail(ErrorKind::kUsage,
           "a weight of a mixture must be a number above 0, got {}; leave the source out instead", weight);
  const double largest = *std::ranges::max_element(weights);
  double sum = 0;  // the weights are relative to the largest, so that it cannot overflow
  for (const double weight : weights) sum += weight / largest;
  std::vector<double> shares;
  for (const double weight : weights) {
    shares.push_back(weight / largest / sum);
    if (shares.back() * static_cast<double>(MixOrder::kMaxSamples) < 1)
      fail(ErrorKind::kUsage,
           "the weight {} is less than 1/{} of the sum of all weights; raise it, or leave the source out",
           weight, MixOrder::kMaxSamples);
  }
  for (int64_t period = static_cast<int64_t>(weights.size()); period <= MixOrder::kMaxSamples; ++period)
    if (std::vector<int64_t> counts = whole_counts(shares, period); !counts.empty()) return counts;
  return rounded_counts(shares);
}

}  // namespace

MixOrder::MixOrder(std::span<const double> weights) : counts_(counts_of(weights)) {
  const int64_t period = std::accumulate(counts_.begin(), counts_.end(), int64_t{0});
  auto table = std::make_shared<std::vector<Entry>>();
  table->reserve(static_cast<size_t>(period));
  std::vector<int64_t> taken(counts_.size(), 0);
  // Tijdeman's rule, in whole numbers. With m sources, due = share * n - taken of sample n, times `period`:
  // the sources that are due by at least 1 / (2m - 2) may be taken, and the one is that would soonest be
  // late.
  const int64_t scale = std::max<int64_t>(1, 2 * sources() - 2);
  for (int64_t n = 1; n <= period; ++n) {
    size_t best = counts_.size();
    int64_t best_slack = 0;
    for (size_t i = 0; i < counts_.size(); ++i) {
      const int64_t due = scale * (counts_[i] * n - taken[i] * period);
      if (due < period) continue;
      const int64_t slack = period * (scale - 1) - due;  // until it is late, in units of its share
      if (best == counts_.size() ||
          static_cast<__int128>(slack) * counts_[best] < static_cast<__int128>(best_slack) * counts_[i])
        best = i, best_slack = slack;
    }
    INGOT_CHECK(best < counts_.size(), "MixOrder: no source is due at sample {} of {}", n, period);
    table->push_back({static_cast<int32_t>(best), static_cast<int32_t>(taken[best]++)});
  }
  table_ = std::move(table);
}

MixOrder::Place MixOrder::place(int64_t sample) const {
  INGOT_CHECK(sample >= 0, "MixOrder::place: sample must be at least 0, got {}", sample);
  const Entry& entry = (*table_)[static_cast<size_t>(sample % period())];
  return {entry.source, sample / period() * count(entry.source) + entry.number};
}

int64_t MixOrder::taken(int64_t source, int64_t samples) const {
  const auto begin = table_->begin();
  return samples / period() * count(source) +
         std::count_if(begin, begin + samples % period(), [&](const Entry& e) { return e.source == source; });
}

}  // namespace ingot
