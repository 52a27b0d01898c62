// Compares tokenizer.json files of the kinds that published models have with the library `tokenizers`
// (tools/make_tokenizer_families.py): those in the repository, or those in the folder that the environment
// variable INGOT_TOKENIZER_FAMILIES names.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <nlohmann/json.hpp>

#include "ingot/core/file.h"
#include "ingot/core/parallel.h"
#include "ingot/data/tokenizer/tokenizer.h"
#include "tests/data/tokenizer_texts.h"
#include "tests/reference/error_of.h"

namespace ingot::test {
namespace {
namespace fs = std::filesystem;

using nlohmann::json;
using ::testing::HasSubstr;

fs::path family_folder() {
  const char* other = std::getenv("INGOT_TOKENIZER_FAMILIES");
  return other ? fs::path(other) : fs::path(INGOT_TEST_DATA) / "tokenizer" / "families";
}

std::unique_ptr<Tokenizer> load_family(const std::string& name) {
  return load_tokenizer(family_folder() / (name + ".json"));
}

class TokenizerFamily : public ::testing::TestWithParam<const char*> {
 protected:
  std::string name = GetParam();
  std::unique_ptr<Tokenizer> tokenizer = load_family(name);
};

TEST_P(TokenizerFamily, EncodesAsTheLibraryTokenizers) {
  const std::string lines = read_file(family_folder() / (name + ".jsonl"));
  int rows = 0;
  for (size_t begin = 0, end; begin < lines.size(); begin = end + 1, ++rows) {
    end = std::min(lines.find('\n', begin), lines.size());
    const json row = json::parse(lines.substr(begin, end - begin));
    const auto text = row["text"].get<std::string>();
    const auto ids = row["ids"].get<std::vector<TokenId>>();
    EXPECT_EQ(encode(*tokenizer, text), ids) << "row " << rows << ": " << row["text"];
    EXPECT_EQ(encode_with_special(*tokenizer, text), row.value("special", ids))
        << "row " << rows << ": " << row["text"];
    if (row.contains("decoded")) {
      EXPECT_EQ(decode(*tokenizer, ids), row["decoded"].get<std::string>())
          << "row " << rows << ": " << row["text"];
    }
  }
  EXPECT_GT(rows, 40);
}

TEST_P(TokenizerFamily, IsWrittenAsItWasRead) {
  const std::string written = tokenizer->to_json();
  EXPECT_EQ(parse_tokenizer(written, "again")->to_json(), written);
}

// Chunks of one text, and texts that are cut where find_cut says, have the ids of the whole text on one
// thread.
TEST_P(TokenizerFamily, CutsDoNotChangeTheIds) {
  Dice dice(7);
  std::string text;
  while (text.size() < 700'000) {
    text += random_text(dice, pattern_alphabet(), dice(3000)) + "<s> a word <think>  \n";
    text += std::string(dice(100), ' ') + std::string(dice(300), 'a') + random_bytes(dice, dice(30));
  }
  const std::vector<TokenId> whole = encode(*tokenizer, text);
  std::vector<TokenId> ids;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = tokenizer->find_cut(text, begin + dice(5000));
    tokenizer->encode(std::string_view(text).substr(begin, end - begin), ids);
    begin = end;
  }
  EXPECT_TRUE(ids == whole);
  const int threads = num_threads();
  set_num_threads(threads == 1 ? 3 : 1);
  EXPECT_TRUE(encode(*tokenizer, text) == whole);
  set_num_threads(threads);
}

TEST(TokenizerFamilies, MostKindsCanBeCutBeforeASpace) {
  const std::string text = "some text, with words";
  for (const char* name : {"llama3", "qwen2", "tekken", "smollm", "deepseek3", "gpt2_prefix", "llama2_first",
                           "gemma", "metaspace_old", "metaspace_never", "few_bytes"})
    EXPECT_EQ(load_family(name)->find_cut(text, 6), std::string(name) == "llama3" ? 9 : 10) << name;
  // A normalizer that prepends does so to each text; the parts of an unknown expression may depend on each
  // other.
  for (const char* name : {"llama2", "splits", "deepseek_coder"})
    EXPECT_EQ(load_family(name)->find_cut(text, 6), text.size()) << name;
}

std::string encode_error(const std::string& name, std::string_view text) {
  return data_error([&] {
    json document = json::parse(read_file(family_folder() / (name + ".json")));
    document["model"]["unk_token"] = nullptr;
    document["model"]["byte_fallback"] = false;
    encode(*parse_tokenizer(document.dump(), name), text);
  });
}

TEST(TokenizerFamilies, ACharacterWithoutATokenIsNamed) {
  EXPECT_THAT(encode_error("llama2", "a \u9f98"),
              HasSubstr("character U+9F98 '\u9f98' of the text has no token"));
  EXPECT_THAT(encode_error("llama2", "a\xFF"), HasSubstr("byte 0xff of the text has no token"));
}

// The library has no such texts: the rule is our own.
TEST(TokenizerFamilies, BytesThatAreNotUtf8RoundTripWhereEachByteHasAToken) {
  Dice dice(11);
  for (const char* name :
       {"qwen2", "smollm", "deepseek3", "tekken", "neox", "falcon", "llama2", "llama2_first", "gemma"}) {
    const std::unique_ptr<Tokenizer> tokenizer = load_family(name);
    for (int i = 0; i < 300; ++i) {
      std::string text = "a" + random_bytes(dice, dice(40));
      // The rest of the text must be in NFC for a round trip; two-byte characters are excluded with their
      // lead bytes.
      for (char& c : text)
        if (static_cast<uint8_t>(c) >= 0xC0) c = '\xFF';
      ASSERT_EQ(decode(*tokenizer, encode(*tokenizer, text)), text) << name;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Tokenizer, TokenizerFamily,
                         ::testing::Values("gpt2_prefix", "llama3", "qwen2", "tekken", "smollm", "deepseek3",
                                           "deepseek_coder", "neox", "falcon", "splits", "few_bytes",
                                           "llama2", "llama2_first", "llama2_added", "gemma", "metaspace_old",
                                           "metaspace_never", "unknown_single", "unknown_fused"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace ingot::test
