// The mutator of the safetensors target. The file is the header's length (8 bytes), the header (JSON) and the
// data; it changes one of the three and mostly makes the others fit, so that the checks behind the parser are
// reached.
#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <cstring>

#include "tests/fuzz/mutate_json.h"

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size);

namespace {

constexpr size_t kMaxData = 1 << 14;  // bytes of data that are added

struct Parts {
  uint64_t length = 0;
  std::string header, data;
};

Parts split(const uint8_t* bytes, size_t size) {
  Parts parts;
  if (size < 8) return parts;
  std::memcpy(&parts.length, bytes, 8);
  const std::string rest(reinterpret_cast<const char*>(bytes) + 8, size - 8);
  const size_t length = std::min<uint64_t>(parts.length, rest.size());
  parts.header = rest.substr(0, length);
  parts.data = rest.substr(length);
  return parts;
}

// Returns the largest number behind "data_offsets", which is where the data should end.
uint64_t last_offset(const std::string& header) {
  uint64_t last = 0;
  for (size_t at = 0; (at = header.find("data_offsets", at)) != header.npos;) {
    const size_t end = std::min(header.find(']', at), header.size());
    const size_t comma = header.find(',', at);
    at = end;
    if (comma >= end) continue;
    uint64_t number = 0;
    std::from_chars(header.data() + comma + 1, header.data() + end, number);
    last = std::max(last, number);
  }
  return last;
}

std::string example(std::minstd_rand& random) {
  constexpr std::array kTypes = {"F32", "BF16", "F16", "I64", "U8", "BOOL", "F64", "F8_E4M3"};
  constexpr std::array<uint64_t, 8> kSizes = {4, 2, 2, 8, 1, 1, 8, 1};
  std::string header = "{";
  uint64_t offset = 0;
  for (size_t n = random() % 4; n-- > 0;) {
    const size_t type = random() % kTypes.size();
    const uint64_t rows = random() % 5, columns = random() % 5, bytes = rows * columns * kSizes[type];
    header += (header.size() > 1 ? ",\"" : "\"") + std::to_string(n) + R"(":{"dtype":")" + kTypes[type] +
              R"(","shape":[)" + std::to_string(rows) + "," + std::to_string(columns) +
              R"(],"data_offsets":[)" + std::to_string(offset) + "," + std::to_string(offset + bytes) + "]}";
    offset += bytes;
  }
  return header + "}";
}

}  // namespace

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* bytes, size_t size, size_t max_size, unsigned seed) {
  std::minstd_rand random(seed);
  const auto kind = random() % 10;
  if (kind == 0) return LLVMFuzzerMutate(bytes, size, max_size);
  Parts parts = split(bytes, size);
  if (kind == 1 || parts.header.empty()) parts.header = example(random);
  if (kind > 2) parts.header = ingot::mutate_json(parts.header, random);
  if (kind > 8) parts.header.append(random() % 16, ' ');
  parts.length = parts.header.size();
  if (kind == 2) {
    constexpr std::array<uint64_t, 6> kLengths = {0, 1, 7, uint64_t{1} << 63, ~uint64_t{0}, 100'000'001};
    parts.length = random() % 2 ? kLengths[random() % kLengths.size()] : parts.length + random() % 9 - 4;
  }
  if (random() % 4 != 0) parts.data.resize(std::min<uint64_t>(last_offset(parts.header), kMaxData));
  std::string file(8, '\0');
  std::memcpy(file.data(), &parts.length, 8);
  file += parts.header + parts.data;
  const size_t new_size = std::min(file.size(), max_size);
  std::memcpy(bytes, file.data(), new_size);
  return new_size;
}
