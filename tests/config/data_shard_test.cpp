// Tests how DataShard splits the samples of a step across ranks.
#include "ingot/config/data_shard.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "tests/reference/error_of.h"

namespace ingot {
namespace {

using ::testing::HasSubstr;

TrainConfig config(int64_t batch_size, int64_t grad_accum) {
  TrainConfig c;
  c.batch_size = batch_size;
  c.grad_accum = grad_accum;
  return c;
}

// Expects that every row of every step belongs to one micro-batch of one rank.
void expect_a_partition(const TrainConfig& c, int64_t ranks) {
  for (const int64_t micros :
       {c.grad_accum, c.batch_ramp.empty() ? c.grad_accum : c.batch_ramp[0].micro_batches}) {
    std::set<int64_t> rows;
    for (int64_t rank = 0; rank < ranks; ++rank) {
      const DataShard share = DataShard::of(c, ranks, rank);
      for (int64_t micro = 0; micro < share.micros(micros); ++micro)
        for (int64_t row = 0; row < share.batch_size; ++row)
          EXPECT_TRUE(rows.insert(share.first_row(micro) + row).second);
    }
    EXPECT_EQ(std::ssize(rows), micros * c.batch_size);
    EXPECT_EQ(*rows.rbegin(), micros * c.batch_size - 1);
  }
}

TEST(DataShard, MicroBatchesAreDividedFirst) {
  const DataShard share = DataShard::of(config(8, 4), 4, 3);
  EXPECT_EQ(share.batch_size, 8);
  EXPECT_EQ(share.micros(4), 1);
  EXPECT_EQ(share.first_row(0), 24);
}

TEST(DataShard, RowsAreDividedWhereMicroBatchesAreNotEnough) {
  const DataShard share = DataShard::of(config(8, 4), 16, 5);
  EXPECT_EQ(share.batch_size, 2);
  EXPECT_EQ(share.micros(4), 1);
  EXPECT_EQ(share.first_row(0), 10);
}

TEST(DataShard, EveryRowBelongsToExactlyOneRank) {
  for (const int64_t ranks : {1, 2, 4, 8, 16}) expect_a_partition(config(4, 4), ranks);
  for (const int64_t ranks : {1, 2, 3, 6, 9, 18}) expect_a_partition(config(3, 6), ranks);
  TrainConfig ramp = config(4, 6);
  ramp.batch_ramp = {{.micro_batches = 2, .until_tokens = 1000}};
  for (const int64_t ranks : {1, 2, 4, 8}) expect_a_partition(ramp, ranks);
}

TEST(DataShard, ABatchThatCannotBeDividedIsRefusedWithTheNearestThatCan) {
  EXPECT_THAT(usage_error([&] { DataShard::of(config(4, 3), 5, 0); }),
              testing::AllOf(HasSubstr("to 5 ranks"), HasSubstr("nearest that can are 4 or 6")));
}

}  // namespace
}  // namespace ingot
