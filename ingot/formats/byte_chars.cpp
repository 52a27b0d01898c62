#include "ingot/formats/byte_chars.h"

namespace ingot {
namespace {

constexpr uint32_t kCharCount = 256 + 68;

constexpr bool is_printable(uint32_t b) {
  return (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || (b >= 174 && b <= 255);
}

struct Map {
  std::array<uint16_t, 256> char_of{};
  std::array<int16_t, kCharCount> byte_of{};  // -1 if no byte has this character
};

constexpr Map make_map() {
  Map map;
  map.byte_of.fill(-1);
  uint32_t next = 256;
  for (uint32_t b = 0; b < 256; ++b) {
    const uint32_t c = is_printable(b) ? b : next++;
    map.char_of[b] = static_cast<uint16_t>(c);
    map.byte_of[c] = static_cast<int16_t>(b);
  }
  return map;
}

constexpr Map kMap = make_map();

}  // namespace

std::array<uint8_t, 256> bytes_in_char_order() {
  std::array<uint8_t, 256> bytes{};
  size_t count = 0;
  for (int16_t byte : kMap.byte_of)
    if (byte >= 0) bytes[count++] = static_cast<uint8_t>(byte);
  return bytes;
}

std::string bytes_to_chars(std::string_view bytes) {
  std::string chars;
  for (char byte : bytes) {
    const uint32_t c = kMap.char_of[static_cast<uint8_t>(byte)];
    if (c < 0x80) {
      chars.push_back(static_cast<char>(c));
    } else {
      chars.push_back(static_cast<char>(0xC0u | c >> 6));
      chars.push_back(static_cast<char>(0x80u | (c & 0x3Fu)));
    }
  }
  return chars;
}

std::optional<std::string> chars_to_bytes(std::string_view chars) {
  std::string bytes;
  for (size_t i = 0; i < chars.size(); ++i) {
    uint32_t c = static_cast<uint8_t>(chars[i]);
    if (c >= 0x80) {  // the map's characters take at most two bytes of UTF-8
      if ((c & 0xE0u) != 0xC0u || i + 1 == chars.size()) return std::nullopt;
      const uint32_t tail = static_cast<uint8_t>(chars[++i]);
      if ((tail & 0xC0u) != 0x80u) return std::nullopt;
      c = (c & 0x1Fu) << 6 | (tail & 0x3Fu);
    }
    if (c >= kCharCount || kMap.byte_of[c] < 0) return std::nullopt;
    bytes.push_back(static_cast<char>(kMap.byte_of[c]));
  }
  return bytes;
}

}  // namespace ingot
