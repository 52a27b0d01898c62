// Compares encodings with tiktoken's: for truncated vocabularies, which are in the repository, and for the
// published vocabularies if the environment variable INGOT_TOKENIZER_DATA names a folder that holds them.
#include <gtest/gtest.h>

#include <cstdlib>
#include <nlohmann/json.hpp>
#include <ostream>

#include "ingot/core/file.h"
#include "ingot/data/tokenizer/tokenizer.h"
#include "tests/reference/sha256.h"

namespace ingot::test {
namespace {
namespace fs = std::filesystem;

using nlohmann::json;

// Compares all rows of a JSON-lines file and returns their number.
int expect_encodings(const Tokenizer& tokenizer, const fs::path& file, const std::string& key) {
  const std::string lines = read_file(file);
  int rows = 0;
  for (size_t begin = 0, end; begin < lines.size(); begin = end + 1, ++rows) {
    end = lines.find('\n', begin);
    if (end == std::string::npos) end = lines.size();
    const json row = json::parse(lines.substr(begin, end - begin));
    const auto text = row["text"].get<std::string>();
    const auto want = row[key].get<std::vector<TokenId>>();
    EXPECT_EQ(encode(tokenizer, text), want) << key << " row " << rows << ": " << row["text"];
    EXPECT_EQ(decode(tokenizer, want), text) << key << " row " << rows;
  }
  return rows;
}

class CutTable : public ::testing::TestWithParam<const char*> {
 protected:
  fs::path folder = fs::path(INGOT_TEST_DATA) / "tokenizer";
  std::string name = GetParam();
  std::unique_ptr<Tokenizer> tokenizer = load_tokenizer(folder / (name + "_cut.tiktoken"));
};

TEST_P(CutTable, EncodesAsTiktoken) {
  EXPECT_EQ(expect_encodings(*tokenizer, folder / "encodings.jsonl", name), 206);
}

TEST_P(CutTable, EncodesAsTiktokenAfterJson) {
  const std::unique_ptr<Tokenizer> again = parse_tokenizer(tokenizer->to_json(), "tokenizer.json");
  EXPECT_EQ(expect_encodings(*again, folder / "encodings.jsonl", name), 206);
}

INSTANTIATE_TEST_SUITE_P(TokenizerGolden, CutTable, ::testing::Values("r50k", "cl100k", "o200k"),
                         [](const auto& info) { return std::string(info.param); });

struct Published {
  const char* name;  // key in the golden files
  const char* file;
};

void PrintTo(const Published& published, std::ostream* out) {
  *out << published.name << " from " << published.file;
}

class PublishedVocabulary : public ::testing::TestWithParam<Published> {
 protected:
  void SetUp() override {
    const char* data = std::getenv("INGOT_TOKENIZER_DATA");
    if (!data)
      GTEST_SKIP() << "INGOT_TOKENIZER_DATA is not set: " << GetParam().file
                   << " not compared with tiktoken (needs tokenizer_golden.jsonl, tokenizer_bulk.json, the "
                      "texts, gpt2/ and tiktoken/)";
    folder = data;
    tokenizer = load_tokenizer(folder / GetParam().file);
  }
  fs::path folder;
  std::unique_ptr<Tokenizer> tokenizer;
};

TEST_P(PublishedVocabulary, EncodesAsTiktoken) {
  EXPECT_GT(expect_encodings(*tokenizer, folder / "tokenizer_golden.jsonl", GetParam().name), 100);
}

TEST_P(PublishedVocabulary, BulkTextsHaveTheirDigests) {
  const json bulk = json::parse(read_file(folder / "tokenizer_bulk.json"));
  for (const auto& [text_name, want] : bulk.items()) {
    fs::path file = folder / (text_name + ".txt");
    if (!fs::exists(file)) file = folder / "books" / (text_name + ".txt");
    const std::vector<TokenId> ids = encode(*tokenizer, MappedFile(file).text());
    const std::string_view bytes(reinterpret_cast<const char*>(ids.data()), ids.size() * sizeof(TokenId));
    EXPECT_EQ(sha256_hex(bytes), want[GetParam().name]["sha256_uint32le"].get<std::string>()) << text_name;
  }
}

INSTANTIATE_TEST_SUITE_P(TokenizerGolden, PublishedVocabulary,
                         ::testing::Values(Published{"gpt2", "gpt2/encoder.json"},
                                           Published{"gpt2", "gpt2/tokenizer.json"},
                                           Published{"gpt2", "tiktoken/r50k_base.tiktoken"},
                                           Published{"cl100k_base", "tiktoken/cl100k_base.tiktoken"},
                                           Published{"o200k_base", "tiktoken/o200k_base.tiktoken"}));

TEST(Sha256, GivesTheKnownDigests) {
  EXPECT_EQ(sha256_hex(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(sha256_hex("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

}  // namespace
}  // namespace ingot::test
