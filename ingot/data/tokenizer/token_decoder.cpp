#include "ingot/data/tokenizer/token_decoder.h"

#include <algorithm>

#include "ingot/formats/byte_chars.h"

namespace ingot {
namespace {

using DecoderType = DecoderStep::Type;

std::string replaced(std::string_view text, std::string_view pattern, std::string_view content) {
  std::string out;
  for (size_t i = 0; i < text.size();) {
    const size_t found = std::min(text.find(pattern, i), text.size());
    out.append(text, i, found - i);
    if (found == text.size()) break;
    out += content;
    i = found + pattern.size();
  }
  return out;
}

// Returns the byte of <0xNN>, or -1.
int byte_of_token(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') return -1;
  int value = 0;
  for (const char c : token.substr(3, 2)) {
    const bool is_digit = c >= '0' && c <= '9', is_letter = c >= 'A' && c <= 'F';
    if (!is_digit && !is_letter) return -1;
    value = value * 16 + (is_digit ? c - '0' : c - 'A' + 10);
  }
  return value;
}

std::string_view without_ends(std::string_view text, const DecoderStep& step) {
  if (step.pattern.empty()) return text;
  for (uint32_t n = 0; n < step.start && text.starts_with(step.pattern); ++n)
    text.remove_prefix(step.pattern.size());
  for (uint32_t n = 0; n < step.stop && text.ends_with(step.pattern); ++n)
    text.remove_suffix(step.pattern.size());
  return text;
}

}  // namespace

TokenDecoder::TokenDecoder(const TokenizerSpec& spec)
    : steps_(spec.pipeline.decoders), is_byte_level_(spec.pipeline.is_byte_level), tokens_(spec.tokens) {
  for (const AddedToken& token : spec.added) {
    if (token.id >= tokens_.size()) tokens_.resize(token.id + size_t{1});
    tokens_[token.id] = token.content;
  }
  while (fuse_ < steps_.size() && steps_[fuse_].type != DecoderType::kFuse) {
    has_first_rule_ |= steps_[fuse_].type == DecoderType::kMetaspace && steps_[fuse_].drops_first;
    ++fuse_;
  }
  texts_.reserve(tokens_.size());
  for (const std::string& token : tokens_) texts_.push_back(decode_token(token, false));
}

std::string TokenDecoder::decode_token(std::string token, bool is_first) const {
  for (size_t i = 0; i < fuse_; ++i) {
    const DecoderStep& step = steps_[i];
    if (step.type == DecoderType::kReplace) {
      token = replaced(token, step.pattern, step.content);
    } else if (step.type == DecoderType::kMetaspace) {
      token = replaced(token, step.pattern, step.drops_first && is_first ? "" : " ");
    } else if (step.type == DecoderType::kStrip) {
      token = without_ends(token, step);
    } else if (step.type == DecoderType::kByteFallback) {
      const int byte = byte_of_token(token);
      if (byte >= 0) token = static_cast<char>(byte);
    } else if (step.type == DecoderType::kByteLevel && !is_byte_level_) {
      token = chars_to_bytes(token).value_or(token);
    }
  }
  return token;
}

void TokenDecoder::append_all(std::span<const uint32_t> ids, std::string& out) const {
  std::string text;
  for (size_t i = 0; i < ids.size(); ++i) {
    if (i == 0 && has_first_rule_)
      text += decode_token(tokens_[ids[i]], true);
    else
      text += texts_[ids[i]];
  }
  std::string_view rest = text;
  for (size_t i = fuse_; i < steps_.size(); ++i)
    if (steps_[i].type == DecoderType::kStrip) rest = without_ends(rest, steps_[i]);
  out += rest;
}

}  // namespace ingot
