// GPT-2's printable spelling of bytes (Radford et al. 2019, encoder.py): bytes 33-126, 161-172 and 174-255
// are the characters of the same number; the other 68, in order, are U+0100, U+0101, ... (space is U+0120,
// 'Ġ').
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace ingot {

// The bytes in the order of their characters: GPT-2's token ids of single bytes.
std::array<uint8_t, 256> bytes_in_char_order();

std::string bytes_to_chars(std::string_view bytes);

// nullopt if some character spells no byte.
std::optional<std::string> chars_to_bytes(std::string_view chars);

}  // namespace ingot
