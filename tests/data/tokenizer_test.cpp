#include "ingot/data/tokenizer/tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "ingot/core/file.h"
#include "ingot/core/parallel.h"
#include "ingot/data/tokenizer/tokenizer_export.h"
#include "tests/data/tokenizer_texts.h"
#include "tests/reference/error_of.h"
#include "tests/reference/temporary_folder.h"

namespace ingot::test {
namespace {
namespace fs = std::filesystem;

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::unique_ptr<Tokenizer> golden_tokenizer(const std::string& name) {
  return load_tokenizer(fs::path(INGOT_TEST_DATA) / "tokenizer" / (name + "_cut.tiktoken"));
}

class AnyBytes : public ::testing::TestWithParam<const char*> {};

TEST_P(AnyBytes, SurviveARoundTrip) {
  const std::unique_ptr<Tokenizer> tokenizer = golden_tokenizer(GetParam());
  Dice dice(1);
  for (int i = 0; i < 2000; ++i) {
    const std::string text =
        dice(2) ? random_bytes(dice, dice(60)) : random_text(dice, pattern_alphabet(), dice(60));
    ASSERT_EQ(decode(*tokenizer, encode(*tokenizer, text)), text);
  }
}

// The text is long enough for many chunks and contains what makes cutting difficult: long runs and
// random bytes.
TEST_P(AnyBytes, EncodingIsTheSameForAnyNumberOfThreads) {
  const std::unique_ptr<Tokenizer> tokenizer = golden_tokenizer(GetParam());
  const int threads = num_threads();
  Dice dice(2);
  std::string text;
  while (text.size() < 1'000'000) {
    text += random_text(dice, pattern_alphabet(), dice(5000));
    text += std::string(dice(300), ' ') + std::string(dice(3000), 'a') + random_bytes(dice, dice(300));
  }
  set_num_threads(1);
  const std::vector<TokenId> serial = encode(*tokenizer, text);
  for (int n : {2, 5}) {
    set_num_threads(n);
    EXPECT_TRUE(encode(*tokenizer, text) == serial) << n << " threads";
  }
  set_num_threads(threads);
  EXPECT_TRUE(decode(*tokenizer, serial) == text);
}

INSTANTIATE_TEST_SUITE_P(Tokenizer, AnyBytes, ::testing::Values("r50k", "cl100k", "o200k"),
                         [](const auto& info) { return std::string(info.param); });

TEST(Tokenizer, EncodeAppends) {
  const std::unique_ptr<Tokenizer> tokenizer = make_byte_tokenizer();
  std::vector<TokenId> ids = {7};
  tokenizer->encode("ab", ids);
  EXPECT_THAT(ids, ElementsAre(7, 'a', 'b'));
}

TEST(Tokenizer, RefusesIdsWithoutAToken) {
  const std::unique_ptr<Tokenizer> tokenizer = golden_tokenizer("r50k");
  EXPECT_EQ(tokenizer->vocab_size(), 2001);
  std::string out;
  EXPECT_THAT(data_error([&] { tokenizer->append_bytes(2001, out); }),
              HasSubstr("token id 2001 has no token"));
  EXPECT_THAT(data_error([&] { tokenizer->append_bytes(0xFFFFFFFF, out); }), HasSubstr("4294967295"));
  EXPECT_EQ(out, "");
  tokenizer->append_bytes(*tokenizer->end_of_text(), out);
  EXPECT_EQ(out, "<|endoftext|>");
}

TEST(Tokenizer, SpecialTokenTextIsOrdinaryText) {
  const std::unique_ptr<Tokenizer> tokenizer = golden_tokenizer("cl100k");
  const std::string text = "a<|endoftext|>b";
  const std::vector<TokenId> ids = encode(*tokenizer, text);
  EXPECT_EQ(decode(*tokenizer, ids), text);
  for (const TokenId id : ids) EXPECT_NE(id, *tokenizer->end_of_text());
}

TEST(ByteTokenizer, IdsAreBytes) {
  const std::unique_ptr<Tokenizer> tokenizer = make_byte_tokenizer();
  EXPECT_EQ(tokenizer->vocab_size(), 256);
  EXPECT_FALSE(tokenizer->end_of_text().has_value());
  EXPECT_THAT(encode(*tokenizer, "\xFF\x01z"), ElementsAre(255, 1, 'z'));
  Dice dice(3);
  const std::string text = random_bytes(dice, 300'000);
  EXPECT_TRUE(decode(*tokenizer, encode(*tokenizer, text)) == text);
}

TEST(CharTokenizer, IdsAreRanksOfCodePoints) {
  const std::unique_ptr<Tokenizer> tokenizer = make_char_tokenizer("hello wörld\n");
  EXPECT_EQ(tokenizer->vocab_size(), 10);
  EXPECT_THAT(encode(*tokenizer, "\n ö"), ElementsAre(0, 1, 9));
  EXPECT_EQ(decode(*tokenizer, std::vector<TokenId>{4, 2, 9}), "hdö");
}

TEST(CharTokenizer, NamesTheCharacterItLacks) {
  const std::unique_ptr<Tokenizer> tokenizer = make_char_tokenizer("abc");
  EXPECT_THAT(data_error([&] { encode(*tokenizer, "aé"); }), HasSubstr("U+00E9 'é' at byte 1 is not among"));
  EXPECT_THAT(data_error([&] { encode(*tokenizer, "ab\xFF"); }), HasSubstr("byte 2 of the text (0xff)"));
  EXPECT_THAT(data_error([] { make_char_tokenizer(""); }), HasSubstr("empty"));
  EXPECT_THAT(data_error([] { make_char_tokenizer("a\xC3"); }), HasSubstr("byte 1 of the text (0xc3)"));
}

TEST(TokenizerJson, OurOwnRoundTrips) {
  std::vector<std::unique_ptr<Tokenizer>> all;
  all.push_back(make_byte_tokenizer());
  all.push_back(make_char_tokenizer("the quick brown fox,\n\t\"jumps\" \\ 中文 \x01"));
  const std::vector<std::string_view> documents = {"the quick brown fox the quick",
                                                   " the \"quick\" \\ fox\n"};
  for (const char* pattern : {"gpt2", "cl100k", "o200k", "llama3", "qwen2", "", "[a-z]+|\\s+"})
    all.push_back(train_bpe(documents, {.vocab_size = 280, .pattern = pattern}));
  const std::string text = "the quick fox,\n";
  for (const auto& tokenizer : all) {
    const std::string json = tokenizer->to_json();
    const std::unique_ptr<Tokenizer> again = parse_tokenizer(json, "ours");
    EXPECT_EQ(again->to_json(), json);
    EXPECT_EQ(encode(*again, text), encode(*tokenizer, text));
    EXPECT_EQ(again->vocab_size(), tokenizer->vocab_size());
    EXPECT_EQ(again->end_of_text(), tokenizer->end_of_text());
  }
}

TEST(TokenizerExport, EveryFormatReadsBackTheSame) {
  const TemporaryFolder folder;
  const std::vector<std::string_view> documents = {"low lower lowest slow slower", "new newer newest"};
  const std::unique_ptr<Tokenizer> tokenizer = train_bpe(documents, {.vocab_size = 280});
  const std::string text = "the lowest newt's slowness\n";
  const std::vector<TokenId> want = encode(*tokenizer, text);
  const auto expect_same = [&](const fs::path& path, std::string_view pattern = {}) {
    const std::unique_ptr<Tokenizer> again = load_tokenizer(path, pattern);
    EXPECT_EQ(encode(*again, text), want) << path;
    EXPECT_EQ(again->vocab_size(), tokenizer->vocab_size()) << path;
    EXPECT_EQ(again->end_of_text(), tokenizer->end_of_text()) << path;
  };
  export_tokenizer(*tokenizer, TokenizerFormat::kJson, folder.path() / "my.json");
  expect_same(folder.path() / "my.json");
  export_tokenizer(*tokenizer, TokenizerFormat::kTiktoken, folder.path() / "my.tiktoken");
  expect_same(folder.path() / "my.tiktoken", "gpt2");
  export_tokenizer(*tokenizer, TokenizerFormat::kGpt2, folder.path() / "gpt2");
  expect_same(folder.path() / "gpt2" / "encoder.json");
  expect_same(folder.path() / "gpt2");
  export_tokenizer(*tokenizer, TokenizerFormat::kFolder, folder.path() / "hf");
  expect_same(folder.path() / "hf");
  expect_same(folder.path() / "hf" / "vocab.json");
  const auto config = nlohmann::json::parse(read_file(folder.path() / "hf" / "tokenizer_config.json"));
  EXPECT_EQ(config["eos_token"], "<|endoftext|>");
  const auto map = nlohmann::json::parse(read_file(folder.path() / "hf" / "special_tokens_map.json"));
  EXPECT_EQ(map["eos_token"], "<|endoftext|>");
}

TEST(TokenizerExport, RefusesWhatAFormatCannotHold) {
  const TemporaryFolder folder;
  const std::unique_ptr<Tokenizer> characters = make_char_tokenizer("ab");
  EXPECT_THAT(
      data_error([&] { export_tokenizer(*characters, TokenizerFormat::kTiktoken, folder.path() / "x"); }),
      HasSubstr("no .tiktoken form"));
  EXPECT_THAT(data_error([&] { export_tokenizer(*characters, TokenizerFormat::kGpt2, folder.path() / "y"); }),
              HasSubstr("no encoder.json + vocab.bpe form"));
  EXPECT_TRUE(fs::is_empty(folder.path()));
}

TEST(TokenizerLoad, NamesWhatIsMissing) {
  const TemporaryFolder folder;
  const auto write = [&](const char* name, const std::string& text) {
    std::ofstream(folder.path() / name, std::ios::binary) << text;
    return folder.path() / name;
  };
  const auto error = [&](const fs::path& path) { return data_error([&] { load_tokenizer(path); }); };
  EXPECT_THAT(error(folder.path() / "absent.json"), HasSubstr("No such file"));
  EXPECT_THAT(error(folder.path()), HasSubstr("holds no tokenizer.json"));
  EXPECT_THAT(error(write("encoder.json", "{}")), HasSubstr("neither vocab.bpe nor merges.txt"));
  EXPECT_THAT(error(write("notes.txt", "hello")), HasSubstr("is no tokenizer"));
  EXPECT_THAT(error(write("mine.tiktoken", "YQ== 0\n")), HasSubstr("name the pattern"));
  EXPECT_THAT(data_error([&] { load_tokenizer(folder.path() / "mine.tiktoken", "gpt2"); }),
              HasSubstr("lacks a token for byte 0x00"));
}

TEST(Utf8Stream, HoldsBackOnlyWhatMayBecomeACharacter) {
  Utf8Stream stream;
  EXPECT_EQ(stream.push("a\xE4"), "a");
  EXPECT_EQ(stream.push("\xB8"), "");
  EXPECT_EQ(stream.push("\xADz"), "中z");
  EXPECT_EQ(stream.push("\xF0\x9F"), "");
  EXPECT_EQ(stream.push("x"), "\uFFFD\uFFFDx");
  EXPECT_EQ(stream.push("\xFF"), "\uFFFD");
  EXPECT_EQ(stream.push("\xE0\x80"), "\uFFFD\uFFFD");  // no continuation makes it valid
  EXPECT_EQ(stream.push("\xED\xA0"), "\uFFFD\uFFFD");  // a surrogate
  EXPECT_EQ(stream.push("\xF4\x8F\xBF"), "");
  EXPECT_EQ(stream.flush(), "\uFFFD");
  EXPECT_EQ(stream.flush(), "");
}

TEST(Utf8Stream, OneByteAtATimeGivesTheText) {
  Dice dice(4);
  const std::string text = random_text(dice, pattern_alphabet(), 500);
  Utf8Stream stream;
  std::string out;
  for (char byte : text) {
    out += stream.push(std::string_view(&byte, 1));
    ASSERT_EQ(valid_utf8_end(out, 0), out.size());
  }
  EXPECT_EQ(out + stream.flush(), text);
}

}  // namespace
}  // namespace ingot::test
