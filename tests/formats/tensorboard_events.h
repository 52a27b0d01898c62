// Reads TensorBoard's event files in tests, with no code of the writer.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace ingot {

// Computes CRC-32C bit by bit; the writer uses a table.
inline uint32_t crc32c(std::string_view bytes) {
  uint32_t crc = 0xffffffffu;
  for (const char c : bytes) {
    crc ^= static_cast<unsigned char>(c);
    for (int i = 0; i < 8; ++i) crc = crc & 1 ? (crc >> 1) ^ 0x82f63b78u : crc >> 1;
  }
  return ~crc;
}
inline uint32_t masked(uint32_t crc) { return ((crc >> 15) | (crc << 17)) + 0xa282ead8u; }

template <typename T>
T fixed(std::string_view bytes, size_t at) {
  T value;
  std::memcpy(&value, bytes.data() + at, sizeof value);
  return value;
}

// Returns the payloads of a file and checks both checksums of each record.
inline std::vector<std::string> records(const std::string& file) {
  std::vector<std::string> out;
  for (size_t at = 0; at < file.size();) {
    const auto length = fixed<uint64_t>(file, at);
    EXPECT_EQ(fixed<uint32_t>(file, at + 8), masked(crc32c(file.substr(at, 8))));
    out.push_back(file.substr(at + 12, length));
    EXPECT_EQ(fixed<uint32_t>(file, at + 12 + length), masked(crc32c(out.back())));
    at += 16 + length;
  }
  return out;
}

// Returns the fields of a protocol buffer message in order, as number and raw bytes (a varint as 8 bytes).
inline std::vector<std::pair<int, std::string>> all_fields(std::string_view in) {
  std::vector<std::pair<int, std::string>> out;
  size_t at = 0;
  const auto varint = [&] {
    uint64_t value = 0;
    for (int shift = 0;; shift += 7) {
      const auto byte = static_cast<unsigned char>(in.at(at++));
      value |= static_cast<uint64_t>(byte & 0x7f) << shift;
      if (byte < 0x80) return value;
    }
  };
  while (at < in.size()) {
    const uint64_t key = varint();
    std::string& field = out.emplace_back(static_cast<int>(key >> 3), "").second;
    const uint64_t type = key & 7;
    if (type == 0) {
      const uint64_t value = varint();
      field.assign(reinterpret_cast<const char*>(&value), sizeof value);
      continue;
    }
    const size_t length = type == 1 ? 8 : type == 5 ? 4 : varint();
    field = std::string(in.substr(at, length));
    at += length;
  }
  return out;
}

// Returns the fields of a message by number. No field may repeat.
inline std::map<int, std::string> fields(std::string_view in) {
  std::map<int, std::string> out;
  for (auto& [number, bytes] : all_fields(in))
    EXPECT_TRUE(out.emplace(number, std::move(bytes)).second) << "repeated field";
  return out;
}

// Returns the values of one field, which may repeat.
inline std::vector<std::string> repeated(std::string_view in, int number) {
  std::vector<std::string> out;
  for (auto& [at, bytes] : all_fields(in))
    if (at == number) out.push_back(std::move(bytes));
  return out;
}

}  // namespace ingot
