#include "ingot/data/tokenizer/bpe_encoder.h"

#include <gtest/gtest.h>

#include <map>

#include "tests/data/tokenizer_texts.h"

namespace ingot::test {
namespace {

// A naive implementation of tiktoken's rule: join the two neighbours whose joined bytes have the lowest
// rank, the leftmost of equals, until no join is left.
std::vector<uint32_t> reference_encode(const std::vector<std::string>& tokens, const std::string& piece) {
  std::map<std::string, uint32_t> ranks;
  for (uint32_t rank = 0; rank < tokens.size(); ++rank)
    if (!tokens[rank].empty()) ranks[tokens[rank]] = rank;
  std::vector<std::string> parts;
  if (ranks.count(piece)) parts = {piece};
  if (parts.empty())
    for (char c : piece) parts.emplace_back(1, c);
  for (;;) {
    size_t best = parts.size();
    uint32_t best_rank = 0xFFFFFFFF;
    for (size_t i = 0; i + 1 < parts.size(); ++i) {
      const auto found = ranks.find(parts[i] + parts[i + 1]);
      if (found != ranks.end() && found->second < best_rank) best = i, best_rank = found->second;
    }
    if (best == parts.size()) break;
    parts[best] += parts[best + 1];
    parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(best) + 1);
  }
  std::vector<uint32_t> ids;
  for (const std::string& part : parts) ids.push_back(ranks.at(part));
  return ids;
}

// Returns the 256 bytes and then joins of two earlier tokens. No order of merges produces most of
// these tables.
std::vector<std::string> random_ranks(Dice& dice, size_t joins, std::string_view letters) {
  std::vector<std::string> tokens;
  for (int byte = 0; byte < 256; ++byte) tokens.emplace_back(1, static_cast<char>(byte));
  std::vector<std::string> parts;
  for (char letter : letters) parts.emplace_back(1, letter);
  std::map<std::string, int> seen;
  while (tokens.size() < 256 + joins) {
    const std::string joined =
        parts[dice(static_cast<uint32_t>(parts.size()))] + parts[dice(static_cast<uint32_t>(parts.size()))];
    if (joined.size() > 12 || seen[joined]++) continue;
    tokens.push_back(joined);
    parts.push_back(joined);
  }
  return tokens;
}

std::vector<uint32_t> encode(const BpeEncoder& encoder, std::string_view piece, BpeWorkspace& workspace) {
  std::vector<uint32_t> ids(piece.size());
  ids.resize(static_cast<size_t>(encoder.encode(piece, ids.data(), workspace) - ids.data()));
  return ids;
}

TEST(BpeEncoder, EqualsTheReferenceForEveryLength) {
  Dice dice(1);
  const std::string letters = "abc";
  for (int table = 0; table < 40; ++table) {
    // A table with few joins is usually consistent, one with many joins usually is not.
    const std::vector<std::string> tokens = random_ranks(dice, 1 + static_cast<size_t>(table) * 2, letters);
    const BpeEncoder encoder(tokens, merges_from_ranks(tokens), true);
    BpeWorkspace workspace;
    for (int i = 0; i < 100; ++i) {
      std::string piece;
      const uint32_t length = 1 + dice(i % 10 == 0 ? 150 : 24);  // lengths above 64 use the heap
      for (uint32_t k = 0; k < length; ++k) piece.push_back(letters[dice(3)]);
      const std::vector<uint32_t> want = reference_encode(tokens, piece);
      ASSERT_EQ(encode(encoder, piece, workspace), want) << piece;
      ASSERT_EQ(encode(encoder, piece, workspace), want) << piece << " again, from the cache";
    }
  }
}

TEST(BpeEncoder, CacheDistinguishesPiecesByLength) {
  std::vector<std::string> tokens;
  for (int byte = 0; byte < 256; ++byte) tokens.emplace_back(1, static_cast<char>(byte));
  const BpeEncoder encoder(tokens, {{0, 0, 0}}, false);
  BpeWorkspace workspace;
  const std::string zeros(16, '\0');
  for (size_t length = 1; length <= 3; ++length)
    EXPECT_EQ(encode(encoder, std::string(length, 'x'), workspace), std::vector<uint32_t>(length, 'x'));
  for (size_t length = 3; length >= 1; --length)
    EXPECT_EQ(encode(encoder, std::string(length, 'x'), workspace), std::vector<uint32_t>(length, 'x'));
}

TEST(BpeEncoder, WholePiecesAreLookedUpOnlyWhenAsked) {
  std::vector<std::string> tokens;
  for (int byte = 0; byte < 256; ++byte) tokens.emplace_back(1, static_cast<char>(byte));
  tokens.push_back("ab");
  tokens.push_back("xyz");  // no merge produces it
  const std::vector<TokenizerMerge> merges = {{'a', 'b', 256}};
  BpeWorkspace first, second;
  EXPECT_EQ(encode(BpeEncoder(tokens, merges, true), "xyz", first), (std::vector<uint32_t>{257}));
  EXPECT_EQ(encode(BpeEncoder(tokens, merges, false), "xyz", second), (std::vector<uint32_t>{'x', 'y', 'z'}));
}

TEST(BpeEncoder, AConsistentTableHasOneMergePerToken) {
  std::vector<std::string> tokens;
  for (int byte = 0; byte < 256; ++byte) tokens.emplace_back(1, static_cast<char>(byte));
  tokens.insert(tokens.end(), {"bc", "", "abc", "abcbc"});  // "ab" is not a token, so "abc" is "a" + "bc"
  const std::vector<TokenizerMerge> merges = merges_from_ranks(tokens);
  ASSERT_EQ(merges.size(), 3u);
  EXPECT_EQ(merges[1].left, uint32_t{'a'});
  EXPECT_EQ(merges[1].right, 256u);
  EXPECT_EQ(merges[2].left, 258u);
  EXPECT_EQ(merges[2].result, 259u);
}

// The piece is 1 MB without a boundary; a quadratic algorithm would take an hour.
TEST(BpeEncoder, LongPiecesAreNotQuadratic) {
  Dice dice(2);
  const std::vector<std::string> tokens = random_ranks(dice, 40, "ab");
  const BpeEncoder encoder(tokens, merges_from_ranks(tokens), true);
  BpeWorkspace workspace;
  std::string piece(size_t{1} << 20, 'a');
  for (size_t i = 0; i < piece.size(); i += 7) piece[i] = 'b';
  std::string decoded;
  for (uint32_t id : encode(encoder, piece, workspace)) decoded += tokens[id];
  EXPECT_TRUE(decoded == piece);
}

}  // namespace
}  // namespace ingot::test
