#include "ingot/core/visible_text.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstdint>

namespace ingot {
namespace {

uint8_t byte_at(std::string_view text, size_t i) { return static_cast<uint8_t>(text[i]); }

// Length in bytes of the UTF-8 character at the start of the text; 0 if there is none. REQUIRES: not empty.
size_t character_bytes(std::string_view text) {
  const uint8_t first = byte_at(text, 0);
  const size_t n = first < 0x80   ? 1
                   : first < 0xc2 ? 0
                   : first < 0xe0 ? 2
                   : first < 0xf0 ? 3
                   : first < 0xf5 ? 4
                                  : 0;
  if (n > text.size()) return 0;
  for (size_t i = 1; i < n; ++i)
    if ((byte_at(text, i) & 0xc0) != 0x80) return 0;
  // Overlong forms, surrogates and code points above U+10FFFF are not valid UTF-8.
  if ((first == 0xe0 && byte_at(text, 1) < 0xa0) || (first == 0xed && byte_at(text, 1) > 0x9f)) return 0;
  if ((first == 0xf0 && byte_at(text, 1) < 0x90) || (first == 0xf4 && byte_at(text, 1) > 0x8f)) return 0;
  return n;
}

uint32_t code_point(std::string_view character) {
  const uint8_t first = byte_at(character, 0);
  if (character.size() == 1) return first;
  uint32_t code = first & (0x7fu >> character.size());
  for (size_t i = 1; i < character.size(); ++i) code = code << 6 | (byte_at(character, i) & 0x3fu);
  return code;
}

bool steers(uint32_t code) {
  if (code < 0x20) return code != '\n' && code != '\t';
  const bool is_c1 = code >= 0x7f && code <= 0x9f;
  const bool turns_direction = (code >= 0x202a && code <= 0x202e) || (code >= 0x2066 && code <= 0x2069);
  return is_c1 || turns_direction;
}

}  // namespace

std::string visible_text(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const size_t bytes = character_bytes(text);
    const size_t taken = bytes > 0 ? bytes : 1;
    if (bytes == 0) {
      out += fmt::format("\\x{:02x}", byte_at(text, 0));
    } else if (const uint32_t code = code_point(text.substr(0, bytes)); steers(code)) {
      out += code < 0x80 ? fmt::format("\\x{:02x}", code) : fmt::format("\\u{:04x}", code);
    } else {
      out += text.substr(0, bytes);
    }
    text.remove_prefix(taken);
  }
  return out;
}

std::string visible_line(std::string_view text) {
  std::string line = visible_text(text);
  std::replace_if(
      line.begin(), line.end(), [](char c) { return c == '\n' || c == '\t'; }, ' ');
  return line;
}

}  // namespace ingot
