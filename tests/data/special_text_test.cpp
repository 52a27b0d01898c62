// Special tokens in plain text on request (data.special). That encode_with_special() finds what the library
// `tokenizers` finds is shown by tokenizer_family_test.cpp.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "ingot/core/error.h"
#include "ingot/core/file.h"
#include "ingot/core/philox.h"
#include "ingot/data/corpus_stream.h"
#include "ingot/data/prepare.h"
#include "ingot/data/token_source_text.h"
#include "ingot/data/tokenizer/tokenizer.h"

namespace ingot::test {
namespace {

namespace fs = std::filesystem;

// Words, white space and added tokens of a tokenizer.json, some side by side.
std::string mixed_text(const fs::path& tokenizer, size_t pieces) {
  std::vector<std::string> added,
      all = {"the cat", "sat", " ", "\n", "  ", "a", "über", ".", "<|", "|>", "im_end"};
  const auto json = nlohmann::json::parse(read_file(tokenizer));
  for (const auto& token : json["added_tokens"]) added.push_back(token["content"]);
  const RandomKey key{.seed = 5, .purpose = Purpose::kSample, .stream = 0, .step = 0};
  std::string text;
  for (size_t i = 0; i < pieces; ++i) {
    const uint32_t word = random_word(key, i);
    const std::vector<std::string>& from = word % 3 == 0 && !added.empty() ? added : all;
    text += from[word / 3 % from.size()];
  }
  return text;
}

// Wherever find_data_cut() cuts a text, the two encode to the tokens of the whole.
TEST(SpecialText, MayBeCutWhereNoTokenLies) {
  size_t cuts = 0, special = 0;
  for (const auto& entry : fs::directory_iterator(fs::path(INGOT_TEST_DATA) / "tokenizer/families")) {
    if (entry.path().extension() != ".json") continue;
    const std::string text = mixed_text(entry.path(), 400);
    const auto tokenizer = load_tokenizer(entry.path());
    const auto ids_of = [&](std::string_view part) {
      std::vector<TokenId> ids;
      tokenizer->encode_data(part, ids);
      return ids;
    };
    const std::vector<TokenId> without = ids_of(text);
    EXPECT_EQ(without, encode(*tokenizer, text)) << entry.path();
    tokenizer->set_finds_special(true);
    const std::vector<TokenId> whole = ids_of(text);
    EXPECT_EQ(whole, encode_with_special(*tokenizer, text)) << entry.path();
    special += whole != without ? 1 : 0;
    for (size_t from = 1; from < text.size(); from += 3) {
      const size_t cut = tokenizer->find_data_cut(text, from);
      std::vector<TokenId> parts = ids_of(std::string_view(text).substr(0, cut));
      const std::vector<TokenId> rest = ids_of(std::string_view(text).substr(cut));
      parts.insert(parts.end(), rest.begin(), rest.end());
      ASSERT_EQ(parts, whole) << entry.path() << " at " << cut;
      cuts += cut < text.size() ? 1 : 0;
    }
  }
  EXPECT_GT(cuts, 1000u);
  EXPECT_GT(special, 5u);
}

TEST(SpecialText, IsTokensInDataOnRequestOnly) {
  const fs::path folder = fs::temp_directory_path() / fmt::format("ingot-special-{}", ::getpid());
  fs::create_directories(folder);
  const std::vector<std::string_view> texts = {"the cat sat on a mat. the dog ran."};
  const auto tokenizer =
      train_bpe(texts, {.vocab_size = 290, .special_tokens = {"<|endoftext|>", "<|im_end|>"}});
  write_file(folder / "tokenizer.json", tokenizer->to_json());
  const std::string text = "the cat sat<|im_end|> the dog<|endoftext|>a mat<|im_end|>";
  write_file(folder / "text.txt", text);
  const StreamedCorpus corpus({(folder / "text.txt").string()}, 0, "text");
  const auto ids = [&] {
    const TokenSource source = tokenize(corpus, *tokenizer).train.tokens;
    std::vector<uint32_t> all(static_cast<size_t>(source.tokens()));
    source.read(0, all);
    return all;
  };
  const TokenId end = encode_with_special(*tokenizer, "<|im_end|>").at(0);
  EXPECT_EQ(std::ranges::count(ids(), end), 0);
  tokenizer->set_finds_special(true);
  EXPECT_EQ(std::ranges::count(ids(), end), 2);
  EXPECT_EQ(std::ranges::count(ids(), *tokenizer->end_of_text()), 1);
  for (const bool finds : {false, true}) {
    PrepareOptions options;
    options.data = {(folder / "text.txt").string()};
    options.tokenizer = (folder / "tokenizer.json").string();
    options.val_fraction = 0;
    options.finds_special = finds;
    options.out = folder / (finds ? "special" : "plain");
    const Dataset dataset = prepare_dataset(options);
    EXPECT_EQ(dataset.train.tokens == std::ssize(encode_with_special(*tokenizer, text)), finds);
  }
  fs::remove_all(folder);
}

}  // namespace
}  // namespace ingot::test
