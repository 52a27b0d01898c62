#include "ingot/data/tokenizer/unicode.h"

#include <cassert>
#include <cstring>

namespace ingot {

CodePoint decode_utf8(std::string_view text, size_t i) {
  constexpr CodePoint kBad{CodePoint::kInvalid, 1};
  const size_t left = text.size() - i;
  const auto byte = [&](size_t k) { return static_cast<uint32_t>(static_cast<uint8_t>(text[i + k])); };
  const auto is_tail = [&](size_t k) { return (byte(k) & 0xC0u) == 0x80u; };
  const uint32_t b = byte(0);
  if (b < 0x80) return {b, 1};
  if (b < 0xC2) return kBad;
  if (b < 0xE0) {
    if (left < 2 || !is_tail(1)) return kBad;
    return {(b & 0x1Fu) << 6 | (byte(1) & 0x3Fu), 2};
  }
  if (b < 0xF0) {
    if (left < 3 || !is_tail(1) || !is_tail(2)) return kBad;
    const uint32_t c = (b & 0x0Fu) << 12 | (byte(1) & 0x3Fu) << 6 | (byte(2) & 0x3Fu);
    if (c < 0x800 || (c >= 0xD800 && c < 0xE000)) return kBad;
    return {c, 3};
  }
  if (b > 0xF4 || left < 4 || !is_tail(1) || !is_tail(2) || !is_tail(3)) return kBad;
  const uint32_t c = (b & 0x07u) << 18 | (byte(1) & 0x3Fu) << 12 | (byte(2) & 0x3Fu) << 6 | (byte(3) & 0x3Fu);
  if (c < 0x10000 || c > 0x10FFFF) return kBad;
  return {c, 4};
}

void append_utf8(uint32_t c, std::string& out) {
  assert(c <= 0x10FFFF);
  const auto put = [&](uint32_t byte) { out.push_back(static_cast<char>(byte)); };
  const auto tail = [&](uint32_t shift) { put(0x80u | ((c >> shift) & 0x3Fu)); };
  if (c < 0x80) {
    put(c);
  } else if (c < 0x800) {
    put(0xC0u | c >> 6), tail(0);
  } else if (c < 0x10000) {
    put(0xE0u | c >> 12), tail(6), tail(0);
  } else {
    put(0xF0u | c >> 18), tail(12), tail(6), tail(0);
  }
}

size_t valid_utf8_end(std::string_view text, size_t i) {
  while (i < text.size()) {
    uint64_t word = 0;
    if (text.size() - i >= 8) {
      std::memcpy(&word, text.data() + i, 8);
      if ((word & 0x8080808080808080u) == 0) {
        i += 8;
        continue;
      }
    }
    const CodePoint c = decode_utf8(text, i);
    if (!c.is_valid()) break;
    i += c.length_bytes;
  }
  return i;
}

}  // namespace ingot
