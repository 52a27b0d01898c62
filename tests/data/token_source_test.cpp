#include "ingot/data/token_source.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>
#include <xxhash.h>

#include <numeric>
#include <string>
#include <vector>

#include "ingot/core/error.h"
#include "ingot/formats/shard.h"
#include "tests/reference/temporary_folder.h"

namespace ingot::test {
namespace {

class TokenSourceTest : public FolderTest {
 protected:
  TokenShard shard(const std::string& name, DType dtype, const std::vector<uint32_t>& tokens) const {
    ShardWriter writer(folder_ / name, dtype);
    writer.append(tokens);
    writer.commit();
    return TokenShard(folder_ / name);
  }
  // Returns the tokens 0 to 9 in segments of every kind; one segment is empty.
  TokenSource mixed() const {
    TokenSource source;
    source.add(shard("a.bin", DType::u16, {0, 1, 2}));
    source.add(std::vector<uint32_t>{3});
    source.add(std::vector<uint16_t>{});
    source.add(shard("b.bin", DType::u32, {4, 5, 6, 7}));
    source.add(std::vector<uint16_t>{8, 9});
    return source;
  }
};

TEST_F(TokenSourceTest, EveryRangeOverSegmentsReadsAsOneStream) {
  const TokenSource source = mixed();
  ASSERT_EQ(source.tokens(), 10);
  for (int64_t begin = 0; begin <= 10; ++begin) {
    for (int64_t end = begin; end <= 10; ++end) {
      std::vector<uint32_t> got(static_cast<size_t>(end - begin), 99), want(got.size());
      std::iota(want.begin(), want.end(), static_cast<uint32_t>(begin));
      source.read(begin, got);
      ASSERT_EQ(got, want) << begin << ".." << end;
    }
  }
  std::vector<uint32_t> two(2);
  EXPECT_THROW(source.read(9, two), Error);
  EXPECT_THROW(source.read(-1, two), Error);
}

TEST_F(TokenSourceTest, SurvivesBeingMoved) {
  TokenSource source = mixed();
  const TokenSource moved = std::move(source);
  std::vector<uint32_t> got(10);
  moved.read(0, got);
  EXPECT_EQ(got[9], 9u);
  EXPECT_EQ(got[4], 4u);
}

TEST_F(TokenSourceTest, NamesTheFileOfAToken) {
  const TokenSource source = mixed();
  EXPECT_THAT(source.place(5), ::testing::EndsWith("b.bin, token 1"));
  EXPECT_EQ(source.place(9), "tokenized text, token 9");
}

TEST_F(TokenSourceTest, HashDependsOnTheTokensOnly) {
  std::vector<uint32_t> tokens(200'000);
  for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<uint32_t>(i * i % 50'257);
  const uint64_t want = XXH3_64bits(tokens.data(), tokens.size() * 4);
  TokenSource wide, cut;
  wide.add(tokens);
  cut.add(shard("c.bin", DType::u16, {tokens.begin(), tokens.begin() + 77'777}));
  cut.add(std::vector<uint16_t>(tokens.begin() + 77'777, tokens.end()));
  EXPECT_EQ(wide.content_hash(), want);
  EXPECT_EQ(cut.content_hash(), want);
  tokens[150'000] ^= 1;
  TokenSource changed;
  changed.add(tokens);
  EXPECT_NE(changed.content_hash(), want);
}

TEST_F(TokenSourceTest, LongStreamsAreHashedByBlocksFromEndToEnd) {
  constexpr int64_t kFull = 2 * TokenSource::kHashBlocks;
  const auto hash = [](std::vector<uint32_t> tokens) {
    TokenSource source;
    source.add(std::move(tokens));
    return source.content_hash(kFull);
  };
  std::vector<uint32_t> tokens(30'000, 7);
  const uint64_t want = hash(tokens);
  EXPECT_EQ(hash(tokens), want);
  for (const size_t changed : {size_t{0}, tokens.size() - 1}) {
    std::vector<uint32_t> other = tokens;
    other[changed] = 8;
    EXPECT_NE(hash(other), want) << changed;
  }
  tokens.push_back(7);
  EXPECT_NE(hash(tokens), want) << "the count is not in the hash";
}

TEST_F(TokenSourceTest, DocumentsBeginAtTheEndOfTextToken) {
  TokenSource source;
  source.add(std::vector<uint16_t>{50, 1, 2, 50, 50, 3, 4, 50});
  source.set_documents({.end_of_text = 50, .positions = {}});
  const auto marks = [&](int64_t begin, int64_t count) {
    std::vector<uint32_t> window(static_cast<size_t>(count));
    source.read(begin, window);
    std::vector<int32_t> doc_start(window.size(), -1);
    source.mark_documents(begin, window, doc_start);
    return doc_start;
  };
  EXPECT_EQ(marks(0, 8), (std::vector<int32_t>{0, 0, 0, 3, 4, 4, 4, 7}));
  EXPECT_EQ(marks(1, 5), (std::vector<int32_t>{0, 0, 2, 3, 3}));
}

TEST_F(TokenSourceTest, ListedDocumentStartsGiveTheSameMarks) {
  TokenSource listed, separated;
  std::vector<uint32_t> tokens(500, 1);
  std::vector<int64_t> positions;
  for (int64_t p = 0; p < 500; p += 1 + (p * 7) % 23) {
    tokens[static_cast<size_t>(p)] = 0;
    positions.push_back(p);
  }
  listed.add(tokens);
  separated.add(tokens);
  listed.set_documents({.end_of_text = std::nullopt, .positions = positions});
  separated.set_documents({.end_of_text = 0, .positions = {}});
  for (int64_t begin = 0; begin + 40 <= 500; ++begin) {
    std::vector<uint32_t> window(40);
    listed.read(begin, window);
    std::vector<int32_t> a(40, -1), b(40, -2);
    listed.mark_documents(begin, window, a);
    separated.mark_documents(begin, window, b);
    ASSERT_EQ(a, b) << begin;
  }
}

TEST_F(TokenSourceTest, AnEmptyStreamCanBeReadAndHashed) {
  const TokenSource source;
  EXPECT_EQ(source.tokens(), 0);
  EXPECT_NO_THROW(source.read(0, {}));
  EXPECT_EQ(source.content_hash(), XXH3_64bits(nullptr, 0));
  EXPECT_FALSE(source.text_bytes().has_value());
}

TEST_F(TokenSourceTest, JoinedStreamsReadAsOneAndKeepTheirDocuments) {
  TokenSource first, second, third;
  first.add(std::vector<uint32_t>{9, 1, 9, 2});
  first.set_documents({.end_of_text = 9u, .positions = {}});
  first.set_text_bytes(5);
  second.add(std::vector<uint16_t>{3, 9, 4, 5});  // 9 is a token like any other here
  second.set_documents({.end_of_text = std::nullopt, .positions = {0, 2, 2}});
  second.set_text_bytes(6);
  third.add(std::vector<uint16_t>{6, 7});
  TokenSource joined;
  joined.add(first);
  joined.add(TokenSource());
  joined.add(second);
  EXPECT_EQ(joined.text_bytes(), 11);
  joined.add(third);
  EXPECT_EQ(joined.text_bytes(), std::nullopt);
  std::vector<uint32_t> all(10);
  joined.read(0, all);
  EXPECT_THAT(all, ::testing::ElementsAre(9, 1, 9, 2, 3, 9, 4, 5, 6, 7));
  const std::vector<int64_t> begins = {0, 2, 4, 6, 8};  // the documents of all streams
  for (int64_t begin = 0; begin < 10; ++begin) {
    for (int64_t end = begin; end <= 10; ++end) {
      const auto size = static_cast<size_t>(end - begin);
      std::vector<uint32_t> window(size);
      joined.read(begin, window);
      std::vector<int32_t> got(size, -1), want(size, 0);
      joined.mark_documents(begin, window, got);
      for (size_t i = 0; i < size; ++i)
        for (const int64_t at : begins)
          if (at >= begin && at <= begin + static_cast<int64_t>(i))
            want[i] = static_cast<int32_t>(at - begin);
      ASSERT_EQ(got, want) << begin << ".." << end;
    }
  }
  TokenSource same;
  same.add(std::vector<uint32_t>{9, 1, 9, 2, 3, 9, 4, 5, 6, 7});
  EXPECT_EQ(joined.content_hash(), same.content_hash());
}

}  // namespace
}  // namespace ingot::test
