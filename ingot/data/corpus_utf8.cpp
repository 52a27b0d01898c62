#include <cstring>

#include "ingot/data/corpus.h"

namespace ingot {
namespace {

// Length of the character at text[i], 0 if it is not valid: RFC 3629, table 3-7 of the Unicode standard.
size_t character_bytes(std::string_view text, size_t i) {
  const auto byte = [&](size_t k) {
    return i + k < text.size() ? static_cast<uint8_t>(text[i + k]) : uint8_t{0};
  };
  const auto continues = [&](size_t k) { return (byte(k) & 0xc0) == 0x80; };
  const uint8_t first = byte(0), second = byte(1);
  if (first < 0x80) return 1;
  if (first >= 0xc2 && first <= 0xdf) return continues(1) ? 2 : 0;
  if (first >= 0xe0 && first <= 0xef) {
    const bool is_overlong = first == 0xe0 && second < 0xa0, is_surrogate = first == 0xed && second > 0x9f;
    return continues(1) && continues(2) && !is_overlong && !is_surrogate ? 3 : 0;
  }
  if (first >= 0xf0 && first <= 0xf4) {
    const bool is_overlong = first == 0xf0 && second < 0x90, is_too_high = first == 0xf4 && second > 0x8f;
    return continues(1) && continues(2) && continues(3) && !is_overlong && !is_too_high ? 4 : 0;
  }
  return 0;
}

}  // namespace

size_t first_invalid_utf8(std::string_view text) {
  size_t i = 0;
  while (i < text.size()) {
    uint64_t eight;
    if (i + sizeof eight <= text.size()) {
      std::memcpy(&eight, text.data() + i, sizeof eight);
      if ((eight & 0x8080808080808080u) == 0) {
        i += sizeof eight;
        continue;
      }
    }
    const size_t length_bytes = character_bytes(text, i);
    if (length_bytes == 0) return i;
    i += length_bytes;
  }
  return i;
}

}  // namespace ingot
