#include "ingot/data/token_source_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "ingot/core/error.h"
#include "ingot/core/parallel.h"
#include "ingot/data/token_source_shards.h"
#include "tests/data/all_tokens.h"
#include "tests/reference/error_of.h"
#include "tests/reference/temporary_folder.h"

namespace ingot::test {
namespace {
namespace fs = std::filesystem;

// Makes one token of each run of up to 9 equal letters: id = letter + 1000 * (run length - 1). With it
// these tests do not depend on BPE.
class RunTokenizer : public Tokenizer {
 public:
  RunTokenizer(std::optional<TokenId> end_of_text, int64_t vocab_size)
      : end_of_text_(end_of_text), vocab_size_(vocab_size) {}
  void encode(std::string_view text, std::vector<TokenId>& out) const override {
    for (size_t i = 0, n; i < text.size(); i += n) {
      for (n = 1; n < 9 && i + n < text.size() && text[i + n] == text[i];) ++n;
      out.push_back(static_cast<TokenId>(static_cast<uint8_t>(text[i]) + 1000 * (n - 1)));
    }
  }
  void append_bytes(TokenId id, std::string& out) const override {
    out.append(id / 1000 + 1, static_cast<char>(id % 1000));
  }
  int64_t vocab_size() const override { return vocab_size_; }
  std::optional<TokenId> end_of_text() const override { return end_of_text_; }
  std::string to_json() const override {
    return fmt::format("run {} {}", end_of_text_.value_or(0), vocab_size_);
  }

 private:
  std::optional<TokenId> end_of_text_;
  int64_t vocab_size_;
};

class Tokenize : public FolderTest {
 protected:
  // Returns documents of odd sizes around `bytes`, filled with runs of letters.
  static Documents make_documents(size_t count, size_t bytes) {
    Documents documents;
    uint32_t state = 1;
    for (size_t d = 0; d < count; ++d) {
      std::string text;
      while (text.size() < bytes + d * 37 % 100) {
        state = state * 1664525 + 1013904223;
        text.append(1 + (state >> 28), static_cast<char>('a' + (state >> 20) % 26));
      }
      documents.add("d", std::move(text));
    }
    return documents;
  }
  // Returns the token stream according to its definition.
  static std::vector<uint32_t> expected(const Documents& documents, const Tokenizer& tokenizer) {
    std::vector<uint32_t> all;
    for (const Document& document : documents) {
      if (documents.size() > 1 && tokenizer.end_of_text()) all.push_back(*tokenizer.end_of_text());
      tokenizer.encode(document.text, all);
    }
    return all;
  }

  RunTokenizer tokenizer{9999, 10'000}, wide{std::nullopt, 70'000};
};

TEST_F(Tokenize, OneDocumentIsItsTokens) {
  const Documents one = make_documents(1, 1000);
  const TokenSource source = tokenize(one, tokenizer);
  EXPECT_EQ(all_tokens(source), expected(one, tokenizer));
  EXPECT_NE(all_tokens(source)[0], 9999u);
  EXPECT_EQ(source.text_bytes(), one.size_bytes());
}

TEST_F(Tokenize, ManyDocumentsBeginWithEndOfTextForAnyNumberOfThreads) {
  const int threads = num_threads();
  Documents mixed = make_documents(50, 300);
  std::string letters(3 << 20, 'x');
  letters += 'y';
  mixed.add("long", letters);
  for (int i = 0; i < 7; ++i) mixed.add("short", "ab");
  for (const int n : {1, 2, 3, 8}) {
    set_num_threads(n);
    EXPECT_EQ(all_tokens(tokenize(mixed, tokenizer)), expected(mixed, tokenizer)) << n << " threads";
    EXPECT_EQ(all_tokens(tokenize(mixed, wide)), expected(mixed, wide)) << n << " threads";
    Documents tiny;
    tiny.add("a", "a");
    tiny.add("b", "b");
    EXPECT_EQ(all_tokens(tokenize(tiny, tokenizer)), (std::vector<uint32_t>{9999, 'a', 9999, 'b'}))
        << n << " threads";
  }
  set_num_threads(threads);
}

TEST_F(Tokenize, WithoutEndOfTextTheStartsAreListed) {
  Documents documents;
  for (const char* text : {"abc", "d", "ef"}) documents.add("x", text);
  const TokenSource source = tokenize(documents, wide);
  EXPECT_EQ(all_tokens(source), (std::vector<uint32_t>{'a', 'b', 'c', 'd', 'e', 'f'}));
  EXPECT_EQ(source.documents().positions, (std::vector<int64_t>{0, 3, 4}));
}

TEST_F(Tokenize, CountsTheBytesOfText) {
  const Documents documents = make_documents(20, 500);
  EXPECT_EQ(count_text_bytes(tokenize(documents, tokenizer), tokenizer), documents.size_bytes());
  TokenSource foreign;
  foreign.add(std::vector<uint32_t>{1, 10'000});
  expect_error(ErrorKind::kData, [&] { count_text_bytes(foreign, tokenizer); },
               {"token 1", "id 10000", "10000 ids"});
}

TEST_F(Tokenize, ShardSetsAreWrittenInPartsAndReadBack) {
  std::vector<uint32_t> tokens(2'500);
  for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<uint32_t>(i);
  ShardSetWriter writer(folder_, "train", DType::u16, 1000, 1);
  for (size_t i = 0; i < tokens.size(); i += 700)
    writer.append(std::span(tokens).subspan(i, std::min<size_t>(700, tokens.size() - i)));
  writer.commit();
  EXPECT_EQ(writer.tokens(), 2'500);
  ASSERT_EQ(writer.files().size(), 3u);
  EXPECT_EQ(writer.files()[2].filename(), "train_000003.bin");
  EXPECT_EQ(TokenShard(writer.files()[2]).tokens(), 500);
  const std::vector<std::string> pattern = {(folder_ / "train_*.bin").string()};
  const TokenSource source = open_shards(pattern, 7);
  EXPECT_EQ(all_tokens(source), tokens);
  EXPECT_EQ(source.documents().end_of_text, 7u);
  const TokenSummary summary = summarize(source);
  EXPECT_EQ(summary.lowest_id, 0u);
  EXPECT_EQ(summary.highest_id, 2'499u);
  EXPECT_EQ(summary.end_of_texts, 1);
  ShardSetWriter exact(folder_, "exact", DType::u16, 500, 0);
  exact.append(std::span(tokens).first(1000));
  exact.commit();
  EXPECT_EQ(exact.files().size(), 2u);
}

TEST_F(Tokenize, NamesShardsAndRefusesMixtures) {
  using Specs = std::vector<std::string>;
  EXPECT_TRUE(names_shards(Specs{"a.bin", "x/train_*.bin", "nanogpt:b"}));
  EXPECT_FALSE(names_shards(Specs{"a.txt", "b.jsonl"}));
  EXPECT_FALSE(names_shards(Specs{}));
  expect_error(ErrorKind::kUsage,
               [] {
                 names_shards(Specs{"a.bin", "b.txt"});
               },
               {"b.txt", "only shards or only text"});
  std::ofstream(folder_ / "raw.bin", std::ios::binary) << "\x05\x01\x06\x01";
  EXPECT_EQ(all_tokens(open_shards(Specs{"nanogpt:" + (folder_ / "raw.bin").string()}, {})),
            (std::vector<uint32_t>{0x105, 0x106}));
  ShardSetWriter empty(folder_, "empty", DType::u16, 10, 0);
  empty.commit();
  expect_error(ErrorKind::kData, [&] { open_shards(Specs{(folder_ / "empty_*.bin").string()}, {}); },
               {"hold no tokens"});
  expect_error(ErrorKind::kData, [&] { open_shards(Specs{(folder_ / "none.bin").string()}, {}); },
               {"does not exist"});
}

TEST_F(Tokenize, StagedFolderAppearsWholeOrNotAtAll) {
  const auto entries = [&] {
    return std::distance(fs::directory_iterator(folder_), fs::directory_iterator());
  };
  {
    StagedFolder staged(folder_ / "out");
    write_file(staged.path() / "x", "1");
    EXPECT_FALSE(fs::exists(folder_ / "out"));
  }
  EXPECT_EQ(entries(), 0);
  fs::create_directory(folder_ / "out");
  StagedFolder staged(folder_ / "out/");
  write_file(staged.path() / "x", "1");
  staged.commit();
  EXPECT_EQ(read_file(folder_ / "out/x"), "1");
  EXPECT_EQ(entries(), 1);
  expect_error(ErrorKind::kUsage, [&] { StagedFolder again(folder_ / "out"); }, {"not an empty folder"});
}

}  // namespace
}  // namespace ingot::test
