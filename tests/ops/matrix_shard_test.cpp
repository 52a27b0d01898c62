#include "ingot/ops/matrix_shard.h"

#include <gtest/gtest.h>

#include "ingot/core/error.h"
#include "tests/reference/numeric.h"

namespace ingot::test {
namespace {

// A range of a matrix (R, C) that begins and ends within rows; a block of its columns; rows, whole and empty.
const std::vector<std::vector<Rect>> kCuts = {
    {{0, 1, 2, 5}, {1, 4, 0, 7}, {5, 1, 0, 3}}, {{0, 6, 3, 4}}, {{2, 3, 0, 7}, {0, 0, 0, 0}}, {}};

Buffer shard_for(const std::vector<Rect>& rects, DType dtype) {
  int64_t n = 0;
  for (const Rect& rect : rects) n += rect.elements();
  return random_tensor(dtype, {n}, 3);
}

// Calls f(element of the shard, element of the matrix of C columns).
template <typename F>
void for_each_element(const std::vector<Rect>& rects, int64_t C, F&& f) {
  size_t here = 0;
  for (const Rect& rect : rects)
    for (int64_t r = rect.row; r < rect.row + rect.rows; ++r)
      for (int64_t c = rect.column; c < rect.column + rect.columns; ++c)
        f(here++, static_cast<size_t>(r * C + c));
}

TEST(MatrixShard, PutWritesTheShardsElementsOnly) {
  Stream stream;
  for (const std::vector<Rect>& rects : kCuts) {
    const Buffer matrix = random_tensor(DType::f32, {6, 7}, 1), shard = shard_for(rects, DType::f32);
    Doubles want = to_doubles(matrix);
    const Doubles values = to_doubles(shard);
    for_each_element(rects, 7, [&](size_t from, size_t to) { want[to] = values[from]; });
    put_shard(matrix, shard, rects, stream);
    EXPECT_EQ(to_doubles(matrix), want);
  }
}

TEST(MatrixShard, CutRoundsOnce) {
  Stream stream;
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const std::vector<Rect>& rects : kCuts) {
      const Buffer matrix = random_tensor(DType::f32, {6, 7}, 1), shard = shard_for(rects, dtype);
      const float* x = matrix.tensor().as<float>();
      cut_shard(shard, matrix, rects, stream);
      const Doubles got = to_doubles(shard);
      for_each_element(rects, 7, [&](size_t to, size_t from) {
        const float want = dtype == DType::f32 ? x[from] : static_cast<float>(bf16(x[from]));
        ASSERT_EQ(got[to], static_cast<double>(want)) << name(dtype) << " " << to;
      });
    }
}

TEST(MatrixShard, RefusesRectanglesOutsideTheMatrix) {
  Stream stream;
  const Buffer matrix = zeros(DType::f32, {4, 4}), shard = zeros(DType::f32, {4}),
               f16s = zeros(DType::f16, {4});
  const std::vector<Rect> right{{3, 1, 0, 4}}, beyond{{4, 1, 0, 4}}, wide{{0, 1, 1, 4}}, few{{0, 1, 0, 3}};
  for (const auto& rects : {beyond, wide, few}) {
    EXPECT_THROW(put_shard(matrix, shard, rects, stream), Error);
    EXPECT_THROW(cut_shard(shard, matrix, rects, stream), Error);
  }
  EXPECT_THROW(cut_shard(f16s, matrix, right, stream), Error);
}

}  // namespace
}  // namespace ingot::test
