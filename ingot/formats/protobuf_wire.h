// Writes protocol buffer messages in their wire format: keys, varints, fixed-size numbers, bytes.
#pragma once

#include <bit>
#include <cstdint>
#include <string>
#include <string_view>

namespace ingot::protobuf {

// Appends an unsigned number, least significant byte first.
template <typename T>
void put_fixed(std::string& out, T value) {
  for (size_t i = 0; i < sizeof value; ++i) out += static_cast<char>(value >> (8 * i) & 0xff);
}

inline void put_varint(std::string& out, uint64_t value) {
  for (; value >= 0x80; value >>= 7) out += static_cast<char>(value | 0x80);
  out += static_cast<char>(value);
}

enum WireType : uint64_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

inline void put_key(std::string& out, int field, WireType type) {
  put_varint(out, static_cast<uint64_t>(field) << 3 | static_cast<uint64_t>(type));
}
inline void put_number(std::string& out, int field, uint64_t value) {
  put_key(out, field, kVarint);
  put_varint(out, value);
}
inline void put_double(std::string& out, int field, double value) {
  put_key(out, field, kFixed64);
  put_fixed(out, std::bit_cast<uint64_t>(value));
}
inline void put_bytes(std::string& out, int field, std::string_view bytes) {
  put_key(out, field, kBytes);
  put_varint(out, bytes.size());
  out += bytes;
}

// Returns a message whose only field is `body`.
inline std::string message(int field, std::string_view body) {
  std::string out;
  put_bytes(out, field, body);
  return out;
}

}  // namespace ingot::protobuf
