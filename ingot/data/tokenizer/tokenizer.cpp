#include "ingot/data/tokenizer/tokenizer.h"

#include "ingot/data/tokenizer/tokenizer_build.h"
#include "ingot/data/tokenizer/unicode.h"

namespace ingot {

std::vector<TokenId> encode(const Tokenizer& tokenizer, std::string_view text) {
  std::vector<TokenId> ids;
  tokenizer.encode(text, ids);
  return ids;
}

std::vector<TokenId> encode_with_special(const Tokenizer& tokenizer, std::string_view text) {
  std::vector<TokenId> ids;
  tokenizer.encode_with_special(text, ids);
  return ids;
}

size_t Tokenizer::find_data_cut(std::string_view text, size_t from) const {
  size_t cut = find_cut(text, from);
  while (finds_special_ && cut < text.size() && has_added_token_at(text, cut)) cut = find_cut(text, cut + 1);
  return cut;
}

std::string decode(const Tokenizer& tokenizer, std::span<const TokenId> ids) {
  std::string text;
  tokenizer.append_text(ids, text);
  return text;
}

void Tokenizer::append_text(std::span<const TokenId> ids, std::string& out) const {
  for (const TokenId id : ids) append_bytes(id, out);
}

std::unique_ptr<Tokenizer> make_byte_tokenizer() {
  TokenizerSpec spec;
  for (int byte = 0; byte < 256; ++byte) spec.tokens.emplace_back(1, static_cast<char>(byte));
  return make_tokenizer(std::move(spec));
}

namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD

// Returns true if the bytes are the start of a valid character that more bytes could complete.
bool is_incomplete(std::string_view bytes) {
  const auto lead = static_cast<uint8_t>(bytes[0]);
  const size_t length = lead >= 0xF0 && lead <= 0xF4   ? 4
                        : lead >= 0xE0 && lead <= 0xEF ? 3
                        : lead >= 0xC2 && lead <= 0xDF ? 2
                                                       : 1;
  if (bytes.size() >= length) return false;
  // If any completion is valid, the lowest or the highest one is.
  for (char tail : {'\x80', '\xBF'}) {
    const std::string completed = std::string(bytes) + std::string(length - bytes.size(), tail);
    if (decode_utf8(completed, 0).is_valid()) return true;
  }
  return false;
}

}  // namespace

std::string Utf8Stream::push(std::string_view bytes) {
  const std::string text = held_ + std::string(bytes);
  held_.clear();
  std::string out;
  for (size_t i = 0; i < text.size();) {
    const size_t valid_end = valid_utf8_end(text, i);
    out.append(text, i, valid_end - i);
    i = valid_end;
    if (i == text.size()) break;
    const std::string_view rest = std::string_view(text).substr(i);
    if (rest.size() < 4 && is_incomplete(rest)) {
      held_ = rest;
      break;
    }
    out += kReplacement;
    ++i;
  }
  return out;
}

std::string Utf8Stream::flush() {
  std::string out;
  if (!held_.empty()) out = kReplacement;
  held_.clear();
  return out;
}

}  // namespace ingot
