// BoundedSeries holds a curve of any length in bounded memory: once it has too many points, neighbours are
// joined into buckets that have their least, largest and mean value.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace ingot {

struct SeriesBucket {
  double x = 0;  // of its last point
  double low = 0, high = 0, sum = 0;
  int64_t points = 0;
  double mean() const { return sum / static_cast<double>(points); }
};

class BoundedSeries {
 public:
  // REQUIRES: most_buckets >= 2.
  explicit BoundedSeries(size_t most_buckets = 2048) : most_buckets_(most_buckets) {}

  // Adds a point. Both numbers are finite.
  void add(double x, double y);
  // In the order of add(). All buckets but the last have points_per_bucket() points.
  const std::vector<SeriesBucket>& buckets() const { return buckets_; }
  int64_t points_per_bucket() const { return per_bucket_; }
  double last() const { return last_; }  // the y of the last point; 0 without one

 private:
  size_t most_buckets_;
  int64_t per_bucket_ = 1;
  double last_ = 0;
  std::vector<SeriesBucket> buckets_;
};

}  // namespace ingot
