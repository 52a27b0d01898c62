// ShardPlaces maps the elements of a shard, or of a whole parameter, to their places in the parameter, for
// kernels (on the CPU: optim/shard_rows.h). For .cu files only.
#pragma once

#include <algorithm>
#include <span>

#include "ingot/core/cuda/cuda_elementwise.h"
#include "ingot/optim/rule.h"

namespace ingot::cuda {

// One rectangle of the parameter; its first element is element `begin` of the shard.
struct ShardPlace {
  int64_t begin;
  uint32_t row, column, columns;

  // Returns the place of element i of the shard, which this rectangle contains.
  __device__ __forceinline__ RowColumn of(int64_t i) const {
    RowColumn at(i - begin, columns);
    at.row += row;
    at.column += column;
    return at;
  }
};

struct ShardPlaces {
  static constexpr int kMax = 8;
  int count = 0;
  bool is_wide = true;  // packs of 4 elements lie in one row and begin at a multiple of 4 columns
  ShardPlace rects[kMax] = {};

  __device__ __forceinline__ RowColumn of(int64_t i) const {
    ShardPlace found = rects[0];
#pragma unroll
    for (int k = 1; k < kMax; ++k)
      if (k < count && i >= rects[k].begin) found = rects[k];
    return found.of(i);
  }
};

// Calls f(rect, begin) for each rectangle with elements; `begin` is its first element in the shard.
template <typename F>
void for_each_rect(const OptimParam& p, F&& f) {
  const Rect all{0, p.whole()[0], 0, p.columns()};
  int64_t begin = 0;
  for (const Rect& rect : p.is_shard() ? std::span<const Rect>(p.rects) : std::span<const Rect>(&all, 1)) {
    if (rect.elements() > 0) f(rect, begin);
    begin += rect.elements();
  }
}

inline ShardPlaces places_of(const OptimParam& p, const char* op) {
  ShardPlaces places;
  for_each_rect(p, [&](const Rect& rect, int64_t begin) {
    INGOT_CHECK(places.count < ShardPlaces::kMax, "{}: {} lies in more than {} rectangles", op, p.name,
                ShardPlaces::kMax);
    row_length(p.whole()[0], p.columns(), op);
    const bool is_wide = begin % 4 == 0 && rect.column % 4 == 0 && rect.columns % 4 == 0;
    places.is_wide = places.is_wide && is_wide;
    places.rects[places.count++] = {begin, static_cast<uint32_t>(rect.row),
                                    static_cast<uint32_t>(rect.column), static_cast<uint32_t>(rect.columns)};
  });
  return places;
}

}  // namespace ingot::cuda
