#include "ingot/formats/chart/bounded_series.h"

#include <algorithm>

namespace ingot {
namespace {

SeriesBucket joined(const SeriesBucket& a, const SeriesBucket& b) {
  return {.x = b.x,
          .low = std::min(a.low, b.low),
          .high = std::max(a.high, b.high),
          .sum = a.sum + b.sum,
          .points = a.points + b.points};
}

}  // namespace

void BoundedSeries::add(double x, double y) {
  const SeriesBucket point{.x = x, .low = y, .high = y, .sum = y, .points = 1};
  last_ = y;
  if (!buckets_.empty() && buckets_.back().points < per_bucket_) {
    buckets_.back() = joined(buckets_.back(), point);
    return;
  }
  if (buckets_.size() >= most_buckets_) {
    for (size_t i = 0; i + 1 < buckets_.size(); i += 2)
      buckets_[i / 2] = joined(buckets_[i], buckets_[i + 1]);
    if (buckets_.size() % 2 == 1) buckets_[buckets_.size() / 2] = buckets_.back();
    buckets_.resize((buckets_.size() + 1) / 2);
    per_bucket_ *= 2;
    if (buckets_.back().points < per_bucket_) {
      buckets_.back() = joined(buckets_.back(), point);
      return;
    }
  }
  buckets_.push_back(point);
}

}  // namespace ingot
