#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>

#include "ingot/core/parallel.h"
#include "ingot/data/tokenizer/pretokenize.h"
#include "ingot/data/tokenizer/tokenizer.h"
#include "ingot/formats/byte_chars.h"
#include "tests/data/tokenizer_texts.h"
#include "tests/reference/error_of.h"

namespace ingot::test {
namespace {

using ::testing::HasSubstr;
using Merges = std::vector<std::pair<std::string, std::string>>;

// A naive trainer that counts all pairs again before each merge. Base ids follow GPT-2's order of bytes.
Merges reference_train(const std::vector<std::string>& documents, const std::string& pattern,
                       size_t vocab_size, int64_t min_count) {
  const Pretokenizer pretokenizer(pattern);
  std::vector<std::string> tokens;
  std::map<std::string, uint32_t> id_of;
  const auto add = [&](const std::string& token) {
    if (id_of.emplace(token, static_cast<uint32_t>(tokens.size())).second) tokens.push_back(token);
  };
  for (uint8_t byte : bytes_in_char_order()) add(std::string(1, static_cast<char>(byte)));
  std::vector<std::vector<uint32_t>> words;
  for (const std::string& document : documents) {
    PieceReader reader(pretokenizer, document, 0, document.size());
    size_t begin = 0;
    for (std::array<size_t, 1> end; reader.next(end); begin = end[0]) {
      words.emplace_back();
      for (size_t i = begin; i < end[0]; ++i) words.back().push_back(id_of.at(document.substr(i, 1)));
    }
  }
  Merges merges;
  while (tokens.size() < vocab_size) {
    std::map<std::pair<uint32_t, uint32_t>, int64_t> counts;
    for (const auto& word : words)
      for (size_t i = 0; i + 1 < word.size(); ++i) ++counts[{word[i], word[i + 1]}];
    std::pair<uint32_t, uint32_t> best;
    int64_t best_count = 0;
    for (const auto& [pair, count] : counts)  // ascending, so the smallest of equal pairs wins
      if (count > best_count) best = pair, best_count = count;
    if (best_count < min_count) break;
    merges.emplace_back(tokens[best.first], tokens[best.second]);
    const std::string joined = tokens[best.first] + tokens[best.second];
    add(joined);
    for (auto& word : words) {
      std::vector<uint32_t> merged;
      for (size_t i = 0; i < word.size(); ++i) {
        const bool is_pair = i + 1 < word.size() && word[i] == best.first && word[i + 1] == best.second;
        merged.push_back(is_pair ? id_of.at(joined) : word[i]);
        i += is_pair ? 1 : 0;
      }
      word = merged;
    }
  }
  return merges;
}

Merges merges_of(const Tokenizer& tokenizer) {
  Merges merges;
  const auto json = nlohmann::json::parse(tokenizer.to_json());
  for (const auto& merge : json["model"]["merges"]) {
    const auto text = merge.get<std::string>();
    const size_t space = text.find(' ');
    merges.emplace_back(*chars_to_bytes(text.substr(0, space)), *chars_to_bytes(text.substr(space + 1)));
  }
  return merges;
}

std::unique_ptr<Tokenizer> train(const std::vector<std::string>& documents, const BpeTrainConfig& config) {
  const std::vector<std::string_view> views(documents.begin(), documents.end());
  return train_bpe(views, config);
}

// Returns words of a small random language, in which pairs repeat and tie.
std::string random_corpus(Dice& dice, uint32_t words) {
  std::vector<std::string> lexicon;
  for (int i = 0; i < 40; ++i)
    lexicon.push_back(random_text(dice, {'a', 'b', 'c', 'n', 0xE9, 0x4E2D}, 1 + dice(7)));
  std::string text;
  for (uint32_t i = 0; i < words; ++i) {
    text += lexicon[std::min(dice(40), dice(40))];
    text += dice(8) ? " " : "aaaa\n";
  }
  return text;
}

TEST(BpeTrain, EqualsTheReferenceMergeForMerge) {
  for (uint64_t seed = 1; seed <= 6; ++seed) {
    Dice dice(seed);
    const std::vector<std::string> documents = {random_corpus(dice, 300), random_corpus(dice, 100),
                                                random_bytes(dice, 200)};
    for (const char* pattern : {"gpt2", "o200k", ""}) {
      const BpeTrainConfig config{.vocab_size = 340, .pattern = pattern};
      ASSERT_EQ(merges_of(*train(documents, config)), reference_train(documents, pattern, 339, 2))
          << pattern << " seed " << seed;
    }
  }
}

TEST(BpeTrain, SmallestPairOfIdsWinsATie) {
  // "ab" and "cd" both occur twice, and 'a' has the smaller id.
  const std::unique_ptr<Tokenizer> tokenizer = train({"cd ab cd ab"}, {.vocab_size = 258, .pattern = "gpt2"});
  EXPECT_EQ(merges_of(*tokenizer), (Merges{{"a", "b"}}));
}

TEST(BpeTrain, RunsOfOneLetterMergeFromTheLeft) {
  const std::vector<std::string> documents = {"aaa aaaaa aaaaaaa aaaaaaaa"};
  const BpeTrainConfig config{.vocab_size = 270, .pattern = "gpt2", .min_count = 1};
  EXPECT_EQ(merges_of(*train(documents, config)), reference_train(documents, "gpt2", 269, 1));
}

TEST(BpeTrain, SameResultForAnyNumberOfThreads) {
  Dice dice(7);
  std::vector<std::string> documents;
  for (int i = 0; i < 5; ++i) documents.push_back(random_corpus(dice, 2000));
  documents.push_back(random_corpus(dice, 500'000));  // this document is cut into several chunks
  const int threads = num_threads();
  std::string first;
  for (int n : {1, 2, 5}) {
    set_num_threads(n);
    const std::string json = train(documents, {.vocab_size = 400})->to_json();
    if (first.empty()) first = json;
    EXPECT_TRUE(json == first) << n << " threads";
  }
  set_num_threads(threads);
}

TEST(BpeTrain, StopsWhenNoPairRepeats) {
  const std::unique_ptr<Tokenizer> tokenizer = train({"abcdefgh"}, {.vocab_size = 1000});
  EXPECT_EQ(tokenizer->vocab_size(), 257);
  EXPECT_EQ(tokenizer->end_of_text(), TokenId{256});
  EXPECT_EQ(train({}, {.vocab_size = 1000})->vocab_size(), 257);
}

TEST(BpeTrain, SpecialTokensAreTheLastIds) {
  const std::unique_ptr<Tokenizer> tokenizer =
      train({"abab abab"}, {.vocab_size = 260, .special_tokens = {"<pad>", "<|endoftext|>"}});
  EXPECT_EQ(tokenizer->vocab_size(), 260);
  EXPECT_EQ(tokenizer->end_of_text(), TokenId{259});
  EXPECT_EQ(decode(*tokenizer, std::vector<TokenId>{258, 259}), "<pad><|endoftext|>");
  for (TokenId id : encode(*tokenizer, "<pad><|endoftext|>")) EXPECT_LT(id, 258u);
}

TEST(BpeTrain, ALongDocumentWithoutBoundariesIsNotQuadratic) {
  Dice dice(8);
  std::string text;
  for (int i = 0; i < 300'000; ++i) text.push_back(static_cast<char>('a' + dice(4)));
  EXPECT_EQ(train({text}, {.vocab_size = 300})->vocab_size(), 300);
}

TEST(BpeTrain, RefusesAnImpossibleConfiguration) {
  const auto message = [](const BpeTrainConfig& config) -> std::string {
    return error_of([&] { train({"abc"}, config); });
  };
  EXPECT_THAT(message({.vocab_size = 256}), HasSubstr("vocab_size must be from 257"));
  EXPECT_THAT(message({.min_count = 0}), HasSubstr("min_count must be at least 1"));
  EXPECT_THAT(message({.special_tokens = {"a", "a"}}), HasSubstr("special tokens must be distinct"));
  EXPECT_THAT(message({.pattern = "(("}), HasSubstr("pattern '(('"));
}

}  // namespace
}  // namespace ingot::test
