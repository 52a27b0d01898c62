// GPT-2's printable spelling of bytes (Radford et al. 2019, encoder.py). Bytes 33-126, 161-172 and
// 174-255 become the characters with the same code point. The other 68 become U+0100, U+0101, ... in
// order, so that space is U+0120, 'Ġ'.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace ingot {

// Returns the bytes in the order of their characters, which is the order of GPT-2's single-byte token ids.
std::array<uint8_t, 256> bytes_in_char_order();

std::string bytes_to_chars(std::string_view bytes);

// The inverse. Returns nullopt if a character spells no byte.
std::optional<std::string> chars_to_bytes(std::string_view chars);

}  // namespace ingot
