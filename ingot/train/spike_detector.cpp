#include "ingot/train/spike_detector.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "ingot/core/error.h"
#include "ingot/core/median.h"

namespace ingot {
namespace {

constexpr double kNormalScale = 1.4826;   // standard deviation / MAD of a normal distribution
constexpr double kSmallestScale = 0.001;  // relative to the median: a flat loss has no deviation to measure

}  // namespace

SpikeDetector::SpikeDetector(int64_t window)
    : ring_(static_cast<size_t>(window)), part_(static_cast<size_t>(window)) {
  INGOT_CHECK(window >= 8, "SpikeDetector: a window of {} is below 8", window);
}

double SpikeDetector::score(double x) {
  if (!std::isfinite(x)) return std::numeric_limits<double>::infinity();
  if (2 * count_ < ring_.size()) return 0;
  const std::span<double> part(part_.data(), count_);
  std::copy_n(ring_.begin(), count_, part.begin());
  const double middle = median_of(part);
  for (double& value : part) value = std::abs(value - middle);
  const double scale = std::max(kNormalScale * median_of(part), kSmallestScale * std::abs(middle));
  return (x - middle) / std::max(scale, std::numeric_limits<double>::min());
}

std::optional<double> SpikeDetector::rise() const {
  if (count_ < ring_.size()) return std::nullopt;
  std::vector<double> all = values();
  const std::span<double> older(all.data(), all.size() / 2),
      newer(all.data() + older.size(), all.size() - older.size());
  const double before = median_of(older);
  if (before == 0) return std::nullopt;
  return median_of(newer) / before;
}

void SpikeDetector::add(double x) {
  if (!std::isfinite(x)) return;
  ring_[next_] = x;
  next_ = (next_ + 1) % ring_.size();
  count_ = std::min(count_ + 1, ring_.size());
}

std::vector<double> SpikeDetector::values() const {
  std::vector<double> values;
  const size_t oldest = (next_ + ring_.size() - count_) % ring_.size();
  for (size_t i = 0; i < count_; ++i) values.push_back(ring_[(oldest + i) % ring_.size()]);
  return values;
}

void SpikeDetector::set_values(std::span<const double> values) {
  count_ = next_ = 0;
  for (const double value : values) add(value);
}

}  // namespace ingot
