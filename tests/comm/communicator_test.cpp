#include "ingot/comm/communicator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "ingot/comm/rank_order.h"

namespace ingot {
namespace {

using testing::ElementsAre;

template <typename T>
Tensor view(std::vector<T>& v) {
  return Tensor(v.data(), dtype_of<T>, {std::ssize(v)});
}

TEST(SelfCommunicator, EveryCollectiveIsTheIdentity) {
  const auto self = self_communicator("alone");
  EXPECT_EQ(self->name(), "alone");
  EXPECT_EQ(self->size(), 1);
  std::vector<float> a = {1, 2, 3}, b(3);
  self->all_reduce("sum", view(a));
  EXPECT_THAT(a, ElementsAre(1, 2, 3));
  Pending gather = self->start_all_gather_into("gather", view(b), view(a));
  EXPECT_TRUE(gather.is_done());
  gather.wait();
  EXPECT_EQ(a, b);
  std::vector<bf16> half = {bf16(0.5f), bf16(-2.0f), bf16(3.0f)};
  self->reduce_scatter("scatter", view(b), view(half));
  EXPECT_THAT(b, ElementsAre(0.5f, -2.0f, 3.0f));
  self->broadcast("weights", view(a), 0);
  self->barrier("end");
  EXPECT_EQ(self->split(0, 0, "tp")->name(), "tp");
  EXPECT_EQ(self->sum(0.1), 0.1);
  EXPECT_EQ(self->max(-3), -3);
  EXPECT_TRUE(self->is_any(true));
  EXPECT_FALSE(self->is_any(false));
  std::string text = "told";
  self->broadcast_text(text, 0);
  EXPECT_EQ(text, "told");
  EXPECT_EQ(self->broadcast_number(7, 0), 7);
}

TEST(SelfCommunicator, WrongOperandsAreRefused) {
  const auto self = self_communicator();
  std::vector<float> a(4), b(3);
  std::vector<uint8_t> bytes(4);
  EXPECT_THROW(self->all_gather_into("x", view(a), view(b)), Error);
  EXPECT_THROW(self->reduce_scatter("x", view(a), view(b)), Error);
  EXPECT_THROW(self->all_reduce("x", view(bytes)), Error);
  EXPECT_THROW(self->broadcast("x", view(a), 1), Error);
  EXPECT_THROW(self->send("x", view(a), 0), Error);
  EXPECT_THROW(self->all_reduce("x", Tensor(a.data(), DType::f32, {2, 2}).columns(0, 1)), Error);
}

TEST(RankOrder, SumsAreInOrderAndRoundedOnce) {
  // (2^24 + 1) + 1 is 2^24 in f32, but (1 + 1) + 2^24 is not, so the result shows
  // that the sum runs in rank order.
  std::vector<float> parts = {0x1p24f, 1, 1}, out(1);
  reduce_in_rank_order(out.data(), DType::f32, parts.data(), DType::f32, 3, 1, ReduceOp::kSum);
  EXPECT_EQ(out[0], 0x1p24f);
  parts = {1, 1, 0x1p24f};
  reduce_in_rank_order(out.data(), DType::f32, parts.data(), DType::f32, 3, 1, ReduceOp::kSum);
  EXPECT_EQ(out[0], 0x1p24f + 2);
  // With a rounding to bf16 after each addition, 256 + 1 + 1 would stay 256; summed in f32
  // and rounded once, it is 258.
  std::vector<bf16> halves = {bf16(256.0f), bf16(1.0f), bf16(1.0f)}, sum(1);
  reduce_in_rank_order(sum.data(), DType::bf16, halves.data(), DType::bf16, 3, 1, ReduceOp::kSum);
  EXPECT_EQ(static_cast<float>(sum[0]), 258.0f);
  reduce_in_rank_order(out.data(), DType::f32, halves.data(), DType::bf16, 3, 1, ReduceOp::kSum);
  EXPECT_EQ(out[0], 258.0f);
}

TEST(RankOrder, MaximaAndMinimaKeepNaN) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (ReduceOp op : {ReduceOp::kMax, ReduceOp::kMin, ReduceOp::kSum}) {
    for (size_t place = 0; place < 3; ++place) {
      std::vector<float> parts = {1, 2, 3}, out(1);
      parts[place] = nan;
      reduce_in_rank_order(out.data(), DType::f32, parts.data(), DType::f32, 3, 1, op);
      EXPECT_NE(out[0], out[0]) << place;
    }
  }
  std::vector<int64_t> whole = {5, -7, 1, 2}, result(2);  // two ranks with two elements each
  reduce_in_rank_order(result.data(), DType::i64, whole.data(), DType::i64, 2, 2, ReduceOp::kMax);
  EXPECT_THAT(result, ElementsAre(5, 2));
  reduce_in_rank_order(result.data(), DType::i64, whole.data(), DType::i64, 2, 2, ReduceOp::kMin);
  EXPECT_THAT(result, ElementsAre(1, -7));
}

TEST(RankOrder, DoublesAreAddedFromTheFirstRankOn) {
  const std::vector<double> parts = {0x1p53, 1, 1};  // 2^53 + 1 is rounded to 2^53, twice
  double sum = 0;
  reduce_in_rank_order(&sum, DType::f64, parts.data(), DType::f64, 3, 1, ReduceOp::kSum);
  EXPECT_EQ(sum, 0x1p53);
  const std::vector<double> other = {1, 1, 0x1p53};
  reduce_in_rank_order(&sum, DType::f64, other.data(), DType::f64, 3, 1, ReduceOp::kSum);
  EXPECT_EQ(sum, 0x1p53 + 2);
}

}  // namespace
}  // namespace ingot
