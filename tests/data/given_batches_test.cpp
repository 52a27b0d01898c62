// Tests that a caller's own rows become whole batches, whose padding is not trained on.
#include "ingot/data/given_batches.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ingot/core/error.h"

namespace ingot::test {
namespace {

constexpr BatchShape kGivenShape{.batch = 2, .context = 3, .vocab_size = 10, .document_mask = true};

std::vector<int32_t> values_in(const Tensor& t) { return {t.as<int32_t>(), t.as<int32_t>() + t.elements()}; }

TEST(GivenBatches, PadsRowsAndTheLastBatch) {
  const std::vector<int32_t> tokens{1, 2, 3, 4, 5, 6}, targets{2, 3, kIgnoreIndex, 5, 6, 7};
  GivenBatches given(kGivenShape, 3, 2, tokens, targets);
  ASSERT_EQ(given.batches(), 2);
  const Batch& first = given.next();
  constexpr int32_t no = kIgnoreIndex;
  EXPECT_THAT(values_in(first.tokens), testing::ElementsAre(1, 2, 0, 3, 4, 0));
  EXPECT_THAT(values_in(first.targets), testing::ElementsAre(2, 3, no, no, 5, no));
  EXPECT_THAT(values_in(first.doc_start), testing::ElementsAre(0, 0, 2, 0, 0, 2));
  EXPECT_EQ(first.counted_targets, 3);
  EXPECT_EQ(given.position(), 2);
  const Batch& last = given.next();
  EXPECT_THAT(values_in(last.tokens), testing::ElementsAre(5, 6, 0, 0, 0, 0));
  EXPECT_THAT(values_in(last.targets), testing::ElementsAre(6, 7, no, no, no, no));
  EXPECT_EQ(last.first_sample, 2);
  given.seek(2);
  EXPECT_EQ(given.next().tokens.data, last.tokens.data);
  GivenBatches moved = std::move(given);
  moved.seek(0);
  EXPECT_EQ(values_in(moved.next().tokens).front(), 1);
}

TEST(GivenBatches, RefusesIdsAndShapesThatTheModelHasNot) {
  const auto refusal = [](int64_t columns, std::vector<int32_t> tokens, std::vector<int32_t> targets) {
    try {
      GivenBatches(kGivenShape, std::ssize(tokens) / columns, columns, tokens, targets);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kUsage);
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_EQ(refusal(2, {1, 2, 3, 9}, {2, 3, 9, 0}), "");
  EXPECT_THAT(refusal(2, {1, 2, 3, 10}, {2, 3, 9, 0}), testing::HasSubstr("tokens: row 1, column 1 is 10"));
  EXPECT_THAT(refusal(2, {1, 2, 3, 9}, {2, -1, 9, 0}), testing::HasSubstr("targets: row 0, column 1 is -1"));
  EXPECT_THAT(refusal(1, {kIgnoreIndex}, {0}), testing::HasSubstr("tokens: row 0, column 0 is -100"));
  EXPECT_THAT(refusal(4, {1, 2, 3, 4}, {1, 2, 3, 4}), testing::HasSubstr("model.context = 3"));
}

}  // namespace
}  // namespace ingot::test
