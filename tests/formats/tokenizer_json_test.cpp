#include "ingot/formats/tokenizer_json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "ingot/formats/byte_chars.h"
#include "tests/reference/error_of.h"

namespace ingot::test {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

// Returns a small valid document: 256 bytes in order, "ab" = 256, "abc" = 257, <|endoftext|> = 258.
json small() {
  json vocab;
  for (int byte = 0; byte < 256; ++byte)
    vocab[bytes_to_chars(std::string(1, static_cast<char>(byte)))] = byte;
  vocab["ab"] = 256;
  vocab["abc"] = 257;
  const json end = {{"id", 258}, {"content", "<|endoftext|>"}, {"special", true}};
  const json byte_level = {{"type", "ByteLevel"}, {"add_prefix_space", false}};
  return {{"added_tokens", {end}},
          {"pre_tokenizer", byte_level},
          {"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", {"a b", "ab c"}}}}};
}

TokenizerSpec read(const json& document) { return read_tokenizer_json(document.dump(), "t.json"); }

std::string json_error_of(const std::string& text) {
  return data_error([&] { read_tokenizer_json(text, "t.json"); });
}
std::string json_error_of(const json& document) {
  return json_error_of(document.dump(-1, ' ', false, json::error_handler_t::ignore));
}
// Returns the error after the value at a JSON pointer has been replaced.
std::string error_with(const char* pointer, const json& value) {
  json document = small();
  document[json::json_pointer(pointer)] = value;
  return json_error_of(document);
}

TEST(TokenizerJsonRead, ReadsASmallDocument) {
  const TokenizerSpec spec = read(small());
  EXPECT_EQ(spec.tokens.size(), 258u);
  EXPECT_EQ(spec.tokens[0], std::string(1, '\0'));
  EXPECT_EQ(spec.tokens[257], "abc");
  ASSERT_EQ(spec.merges.size(), 2u);
  EXPECT_EQ(spec.merges[1].left, 256u);
  EXPECT_EQ(spec.merges[1].right, uint32_t{'c'});
  EXPECT_EQ(spec.merges[1].result, 257u);
  EXPECT_EQ(spec.pattern, "gpt2");
  ASSERT_EQ(spec.added.size(), 1u);
  EXPECT_EQ(spec.added[0].id, 258u);
  EXPECT_FALSE(spec.takes_whole_pieces);
}

TEST(TokenizerJsonRead, ReadsBothSpellingsOfMerges) {
  json document = small();
  document["model"]["merges"] = json::array({json::array({"a", "b"}), json::array({"ab", "c"})});
  EXPECT_EQ(read(document).merges.size(), 2u);
}

TEST(TokenizerJsonRead, ReadsASplitBeforeByteLevel) {
  json document = small();
  const json split = {{"type", "Split"}, {"pattern", {{"Regex", "\\p{L}+"}}}, {"behavior", "Isolated"}};
  const json byte_level = {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}};
  document["pre_tokenizer"] = {{"type", "Sequence"}, {"pretokenizers", {split, byte_level}}};
  document["model"]["ignore_merges"] = true;
  const TokenizerSpec spec = read(document);
  EXPECT_EQ(spec.pattern, "\\p{L}+");
  EXPECT_TRUE(spec.takes_whole_pieces);
}

TEST(TokenizerJsonRead, AnAddedTokenMayAlsoBeInTheVocabulary) {
  json document = small();
  document["model"]["vocab"]["<|endoftext|>"] = 258;
  EXPECT_EQ(read(document).tokens.size(), 258u);
  document["model"]["vocab"]["<|endoftext|>"] = 259;
  EXPECT_THAT(json_error_of(document), HasSubstr("added token '<|endoftext|>' has id 258, but 259"));
}

TEST(TokenizerJsonRead, WritesWhatItReads) {
  const TokenizerSpec spec = read(small());
  const std::string text = write_tokenizer_json(spec, true);
  EXPECT_EQ(write_tokenizer_json(read_tokenizer_json(text, "again"), true), text);
  const json document = json::parse(text);
  EXPECT_EQ(document["model"]["merges"], json({"a b", "ab c"}));
  EXPECT_EQ(document["model"]["vocab"]["<|endoftext|>"], 258);
}

TEST(TokenizerJsonRead, RefusesBrokenJsonWithItsLine) {
  EXPECT_THAT(json_error_of(std::string()), HasSubstr("t.json:1: not valid JSON"));
  EXPECT_THAT(json_error_of(std::string("{\n\"model\":\n")), HasSubstr("t.json:3: not valid JSON"));
  EXPECT_THAT(json_error_of(std::string("{\"a\":\"\xFF\"}")), HasSubstr("t.json:1: not valid JSON"));
  EXPECT_THAT(json_error_of(std::string("[1]")), HasSubstr("expected a JSON object"));
  EXPECT_THAT(json_error_of(std::string("{}")), HasSubstr("t.json: model: expected an object"));
  EXPECT_THAT(json_error_of(std::string("{\"model\":1,\"model\":2}")), HasSubstr("'model' occurs twice"));
  const std::string deep = std::string(100'000, '[') + std::string(100'000, ']');
  EXPECT_THAT(json_error_of("{\"x\":" + deep + "}"), HasSubstr("nested deeper than 64"));
  EXPECT_THAT(json_error_of(std::string(100'000, '[')), HasSubstr("nested deeper than 64"));
}

TEST(TokenizerJsonRead, RefusesComponentsThatItDoesNotSupport) {
  for (const char* model : {"Unigram", "WordPiece", "WordLevel"})
    EXPECT_THAT(error_with("/model/type", model),
                HasSubstr("model.type: expected \"BPE\" (Unigram, WordPiece"));
  EXPECT_THAT(error_with("/model/end_of_word_suffix", "</w>"), HasSubstr("model.end_of_word_suffix"));
  EXPECT_THAT(error_with("/model/unk_token", "<unk>"),
              HasSubstr("model.unk_token: expected a token of model.vocab"));
  EXPECT_THAT(error_with("/normalizer", {{"type", "Precompiled"}}),
              HasSubstr("normalizer.type: expected NFC, NFD,"));
  EXPECT_THAT(error_with("/pre_tokenizer/type", "BertPreTokenizer"),
              HasSubstr("pre_tokenizer.type: expected Split, Digits,"));
  EXPECT_THAT(error_with("/pre_tokenizer/use_regex", 1),
              HasSubstr("use_regex: expected true or false, got 1"));
  json document = small();
  document["normalizer"] = {{"type", "NFC"}};
  document["decoder"] = {{"type", "WordPiece"}};
  EXPECT_THAT(json_error_of(document), HasSubstr("decoder.type: expected ByteLevel, ByteFallback,"));
}

TEST(TokenizerJsonRead, RefusesStepsThatAreWrong) {
  const auto replace = [](const json& pattern, const std::string& content) {
    return json{{"type", "Replace"}, {"pattern", pattern}, {"content", content}};
  };
  EXPECT_THAT(error_with("/normalizer", replace({{"Regex", "a"}}, "b")),
              HasSubstr("normalizer.pattern.Regex: expected a String pattern"));
  EXPECT_THAT(error_with("/normalizer", replace({{"String", ""}}, "b")), HasSubstr("that is not empty"));
  EXPECT_THAT(error_with("/normalizer", replace({{"String", "a"}}, std::string(257, 'b'))),
              HasSubstr("normalizer.content: expected at most 256 bytes"));
  const json many(std::vector<json>(65, {{"type", "NFC"}}));
  EXPECT_THAT(error_with("/normalizer", {{"type", "Sequence"}, {"normalizers", many}}),
              HasSubstr("normalizer.normalizers[64]: expected at most 64 steps"));
  EXPECT_THAT(
      error_with("/pre_tokenizer", {{"type", "Split"}, {"pattern", {{"String", "a"}}}, {"behavior", "Kept"}}),
      HasSubstr("pre_tokenizer.behavior: expected Isolated, Removed,"));
  EXPECT_THAT(error_with("/pre_tokenizer", {{"type", "Metaspace"}, {"replacement", "ab"}}),
              HasSubstr("pre_tokenizer.replacement: expected one character"));
  EXPECT_THAT(error_with("/pre_tokenizer", {{"type", "Metaspace"}, {"prepend_scheme", "last"}}),
              HasSubstr("prepend_scheme: expected always, first or never"));
  const json byte_level = {{"type", "ByteLevel"}};
  EXPECT_THAT(
      error_with("/pre_tokenizer", {{"type", "Sequence"}, {"pretokenizers", {byte_level, byte_level}}}),
      HasSubstr("pretokenizers[1].type: expected neither Metaspace nor ByteLevel after ByteLevel"));
}

TEST(TokenizerJsonRead, ReadsTheStepsOfAPipeline) {
  json document = small();
  document["normalizer"] = {{"type", "Sequence"},
                            {"normalizers", {{{"type", "NFC"}}, {{"type", "Prepend"}, {"prepend", "_"}}}}};
  document["pre_tokenizer"] = {{"type", "Metaspace"}, {"replacement", "_"}, {"add_prefix_space", true}};
  document["added_tokens"].push_back({{"id", 259}, {"content", "<x>"}, {"special", false}, {"rstrip", true}});
  const TokenizerSpec spec = read(document);
  EXPECT_EQ(spec.kind, TokenizerSpec::Kind::kPipeline);
  ASSERT_EQ(spec.pipeline.normalizers.size(), 2u);
  EXPECT_EQ(spec.pipeline.normalizers[1].content, "_");
  ASSERT_EQ(spec.pipeline.pre_tokenizers.size(), 1u);
  EXPECT_EQ(spec.pipeline.pre_tokenizers[0].prepend, PrependScheme::kAlways);
  EXPECT_TRUE(spec.pipeline.pre_tokenizers[0].splits);
  EXPECT_FALSE(spec.pipeline.is_byte_level);
  EXPECT_FALSE(spec.added[0].strips_right);
  EXPECT_TRUE(spec.added[1].strips_right);
  EXPECT_EQ(spec.pipeline.json, document.dump());
}

TEST(TokenizerJsonRead, RefusesAVocabularyThatIsWrong) {
  EXPECT_THAT(error_with("/model/vocab", json::array({1})), HasSubstr("model.vocab: expected an object"));
  EXPECT_THAT(error_with("/model/vocab/ab", -1), HasSubstr("model.vocab['ab']: expected a token id"));
  EXPECT_THAT(error_with("/model/vocab/ab", 1.5), HasSubstr("model.vocab['ab']: expected a token id"));
  EXPECT_THAT(error_with("/model/vocab/ab", 4294967296), HasSubstr("got 4294967296"));
  EXPECT_THAT(error_with("/model/vocab/ab", 257), HasSubstr("id 257 belongs to two tokens"));
  EXPECT_THAT(error_with("/model/vocab/ab", 258), HasSubstr("added token '<|endoftext|>' has id 258, which"));
  EXPECT_THAT(error_with("/model/vocab/a b", 300), HasSubstr("token 'a b' (id 300) is not spelled"));
  EXPECT_THAT(error_with("/model/vocab/", 300), HasSubstr("token '' (id 300) is not spelled"));
  EXPECT_THAT(error_with("/model/vocab/\u4e2d", 300), HasSubstr("(id 300) is not spelled"));
  json document = small();
  document["model"]["vocab"].erase("z");
  EXPECT_THAT(json_error_of(document), HasSubstr("lacks a token for byte 0x7a"));
}

TEST(TokenizerJsonRead, RefusesMergesThatAreWrong) {
  EXPECT_THAT(error_with("/model/merges", "a b"), HasSubstr("model.merges: expected a list"));
  EXPECT_THAT(error_with("/model/merges/1", "ab d"),
              HasSubstr("model.merges[1]: the merge needs the token 'abd'"));
  EXPECT_THAT(error_with("/model/merges/1", "xy z"), HasSubstr("needs the token 'xy'"));
  EXPECT_THAT(error_with("/model/merges/1", "a b"), HasSubstr("the merge 'a b' occurs twice"));
  for (const char* pair : {"ab", "a b c", " ab", "ab ", ""})
    EXPECT_THAT(error_with("/model/merges/1", pair), HasSubstr("model.merges[1]: expected two tokens"))
        << pair;
  EXPECT_THAT(error_with("/model/merges/1", json::array({"a"})), HasSubstr("expected two tokens"));
  EXPECT_THAT(error_with("/model/merges/1", 5), HasSubstr("model.merges[1]: expected a string, got 5"));
}

TEST(TokenizerJsonRead, RefusesAddedTokensThatAreWrong) {
  EXPECT_THAT(error_with("/added_tokens/0/id", 4000000000),
              HasSubstr("added_tokens[0].id: expected a token id"));
  EXPECT_THAT(error_with("/added_tokens/0/content", ""), HasSubstr("added token with id 258 is empty"));
  EXPECT_THAT(error_with("/added_tokens/0/id", 5), HasSubstr("has id 5, which is the id of"));
  json document = small();
  document["added_tokens"].push_back({{"id", 258}, {"content", "<x>"}});
  EXPECT_THAT(json_error_of(document), HasSubstr("have the same id 258"));
}

TEST(Gpt2Vocab, ReadsThePairAndNamesWhatIsWrong) {
  const std::string vocab = small()["model"]["vocab"].dump();
  const auto read_pair = [&](const std::string& merges) {
    return read_gpt2_vocab(vocab, "encoder.json", merges, "vocab.bpe");
  };
  const TokenizerSpec spec = read_pair("#version: 0.2\na b\r\nab c\n\n");
  EXPECT_EQ(spec.merges.size(), 2u);
  EXPECT_EQ(spec.pattern, "gpt2");
  EXPECT_EQ(write_merges_txt(spec), "#version: 0.2\na b\nab c\n");
  EXPECT_THAT(error_of([&] { read_pair("#version: 0.2\na b\nab x\n"); }),
              HasSubstr("vocab.bpe:3: the merge needs the token 'abx'"));
}

TEST(ByteChars, MapEqualsThatOfGpt2) {
  EXPECT_EQ(bytes_to_chars(" \n\t\0"), "\u0120\u010A\u0109");
  EXPECT_EQ(bytes_to_chars(std::string("\0\xAD\xFF", 3)), "\u0100\u0143\u00FF");
  std::string all;
  for (int byte = 0; byte < 256; ++byte) all.push_back(static_cast<char>(byte));
  EXPECT_EQ(chars_to_bytes(bytes_to_chars(all)), all);
  EXPECT_EQ(bytes_in_char_order()[0], '!');
  EXPECT_EQ(bytes_in_char_order()[188], 0);
  for (const char* text : {" ", "\u0144", "\u00AD", "\u4e2d", "\xC4", "\xFF", "\n"})
    EXPECT_FALSE(chars_to_bytes(text).has_value()) << text;
}

}  // namespace
}  // namespace ingot::test
