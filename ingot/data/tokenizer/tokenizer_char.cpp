#include <algorithm>
#include <unordered_map>

#include "ingot/core/error.h"
#include "ingot/data/corpus_reader.h"
#include "ingot/data/tokenizer/added_tokens.h"
#include "ingot/data/tokenizer/tokenizer_build.h"
#include "ingot/data/tokenizer/unicode.h"
#include "ingot/formats/tokenizer_json.h"

namespace ingot {
namespace {

class CharacterTokenizer final : public Tokenizer {
 public:
  explicit CharacterTokenizer(TokenizerSpec spec)
      : spec_(std::move(spec)), vocab_(spec_), added_(spec_.added) {
    for (TokenId id = 0; id < spec_.tokens.size(); ++id)
      if (!spec_.tokens[id].empty()) id_of_.emplace(decode_utf8(spec_.tokens[id], 0).value, id);
  }

  void encode(std::string_view text, std::vector<TokenId>& out) const override {
    out.reserve(out.size() + text.size());
    for (size_t i = 0; i < text.size();) {
      const CodePoint c = decode_utf8(text, i);
      const auto found = id_of_.find(c.value);
      if (found == id_of_.end()) refuse(text, i, c);
      out.push_back(found->second);
      i += c.length_bytes;
    }
  }

  void encode_with_special(std::string_view text, std::vector<TokenId>& out) const override {
    encode_around(added_, text, out, [this, &out](std::string_view rest) { encode(rest, out); });
  }

  size_t find_cut(std::string_view text, size_t from) const override { return character_begin(text, from); }

  void append_bytes(TokenId id, std::string& out) const override { vocab_.append_bytes(id, out); }
  int64_t vocab_size() const override { return vocab_.size(); }
  std::optional<TokenId> end_of_text() const override { return vocab_.end_of_text(); }
  std::string to_json() const override { return write_tokenizer_json(spec_, false); }

 private:
  bool has_added_token_at(std::string_view text, size_t at) const override {
    return added_.may_lie_at(text, at);
  }
  [[noreturn]] void refuse(std::string_view text, size_t i, CodePoint c) const {
    if (!c.is_valid())
      fail(ErrorKind::kData, "byte {} of the text (0x{:02x}) is not UTF-8; a character tokenizer needs UTF-8",
           i, static_cast<uint8_t>(text[i]));
    fail(ErrorKind::kData,
         "character U+{:04X} '{}' at byte {} is not among the tokenizer's {} characters; use a byte or BPE "
         "tokenizer for text that the training text did not cover",
         c.value, text.substr(i, c.length_bytes), i, id_of_.size());
  }

  TokenizerSpec spec_;
  TokenVocab vocab_;
  AddedTokens added_;
  std::unordered_map<uint32_t, TokenId> id_of_;  // code point -> id
};

}  // namespace

std::unique_ptr<Tokenizer> make_character_tokenizer(TokenizerSpec spec) {
  return std::make_unique<CharacterTokenizer>(std::move(spec));
}

std::unique_ptr<Tokenizer> make_char_tokenizer(std::string_view corpus) {
  if (corpus.empty()) fail(ErrorKind::kData, "the text of a character tokenizer is empty; give it some text");
  std::vector<bool> is_present(0x110000);
  for (size_t i = 0; i < corpus.size();) {
    const CodePoint c = decode_utf8(corpus, i);
    if (!c.is_valid())
      fail(ErrorKind::kData, "byte {} of the text (0x{:02x}) is not UTF-8; use a byte or BPE tokenizer", i,
           static_cast<uint8_t>(corpus[i]));
    is_present[c.value] = true;
    i += c.length_bytes;
  }
  TokenizerSpec spec;
  spec.kind = TokenizerSpec::Kind::kCharacters;
  for (uint32_t c = 0; c < is_present.size(); ++c)
    if (is_present[c]) append_utf8(c, spec.tokens.emplace_back());
  return make_tokenizer(std::move(spec));
}

}  // namespace ingot
