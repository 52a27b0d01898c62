#include "ingot/data/tokenizer/bpe_symbols.h"

#include "ingot/core/error.h"
#include "ingot/data/tokenizer/unicode.h"

namespace ingot {
namespace {

[[noreturn]] void refuse_character(std::string_view character, bool is_byte_level) {
  const CodePoint c = decode_utf8(character, 0);
  const char* fix = "the vocabulary has neither an unknown token (unk_token) nor byte tokens (byte_fallback)";
  if (is_byte_level || !c.is_valid())
    fail(ErrorKind::kData, "byte 0x{:02x} of the text has no token: {}", static_cast<uint8_t>(character[0]),
         fix);
  fail(ErrorKind::kData, "character U+{:04X} '{}' of the text has no token: {}", c.value, character, fix);
}

}  // namespace

BpeSymbols::BpeSymbols(const TokenIndex& index, const TokenizerPipeline& pipeline)
    : index_(&index),
      is_byte_level_(pipeline.is_byte_level),
      has_byte_fallback_(pipeline.has_byte_fallback && !pipeline.is_byte_level),
      fuses_unknown_(pipeline.fuses_unknown),
      unknown_(pipeline.unknown.value_or(TokenIndex::kNone)) {
  for (uint32_t byte = 0; byte < 256; ++byte) {
    const char c = static_cast<char>(byte);
    single_byte_[byte] = index.find(std::string_view(&c, 1));
    fallback_[byte] = index.find(fmt::format("<0x{:02X}>", byte));
  }
}

uint32_t BpeSymbols::id_of(std::string_view character) const {
  return character.size() == 1 ? single_byte_[static_cast<uint8_t>(character[0])] : index_->find(character);
}

uint32_t* BpeSymbols::write_bytes(std::string_view character, uint32_t* out) const {
  for (const char c : character)
    if ((*out++ = fallback_[static_cast<uint8_t>(c)]) == TokenIndex::kNone) return nullptr;
  return out;
}

// The unknown token of a run is written before the next character that has a token. Byte tokens come before
// it, as in the library `tokenizers`.
uint32_t* BpeSymbols::write(std::string_view piece, uint32_t* out) const {
  bool is_unknown_due = false;
  for (size_t i = 0; i < piece.size();) {
    const size_t length = is_byte_level_ ? 1 : decode_utf8(piece, i).length_bytes;
    const std::string_view character = piece.substr(i, length);
    i += length;
    const uint32_t id = id_of(character);
    if (id != TokenIndex::kNone) {
      if (is_unknown_due) *out++ = unknown_;
      is_unknown_due = false;
      *out++ = id;
      continue;
    }
    if (has_byte_fallback_)
      if (uint32_t* end = write_bytes(character, out)) {
        out = end;
        continue;
      }
    if (unknown_ == TokenIndex::kNone) refuse_character(character, is_byte_level_);
    if (is_unknown_due && !fuses_unknown_) *out++ = unknown_;
    is_unknown_due = true;
  }
  if (is_unknown_due) *out++ = unknown_;
  return out;
}

}  // namespace ingot
