#include "ingot/formats/tiktoken.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>

#include "ingot/core/error.h"
#include "ingot/formats/tokenizer_spec.h"

namespace ingot {
namespace {

constexpr std::string_view kAlphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

constexpr std::array<int8_t, 256> make_values() {
  std::array<int8_t, 256> values{};
  values.fill(-1);
  for (size_t i = 0; i < kAlphabet.size(); ++i)
    values[static_cast<uint8_t>(kAlphabet[i])] = static_cast<int8_t>(i);
  return values;
}
constexpr std::array<int8_t, 256> kValues = make_values();

// Decodes padded base64 (RFC 4648). Returns nullopt if it is malformed or decodes to nothing.
std::optional<std::string> decode_base64(std::string_view text) {
  if (text.empty() || text.size() % 4 != 0) return std::nullopt;
  const size_t padding = text.ends_with("==") ? 2 : text.ends_with('=') ? 1 : 0;
  std::string bytes;
  bytes.reserve(text.size() / 4 * 3);
  uint32_t bits = 0, count = 0;
  for (char c : text.substr(0, text.size() - padding)) {
    const int value = kValues[static_cast<uint8_t>(c)];
    if (value < 0) return std::nullopt;
    bits = bits << 6 | static_cast<uint32_t>(value);
    if ((count += 6) < 8) continue;
    count -= 8;
    bytes.push_back(static_cast<char>(bits >> count));
    bits &= (1u << count) - 1;
  }
  if (bits != 0 || bytes.empty()) return std::nullopt;
  return bytes;
}

std::string encode_base64(std::string_view bytes) {
  std::string text;
  for (size_t i = 0; i < bytes.size(); i += 3) {
    const size_t n = std::min<size_t>(3, bytes.size() - i);
    uint32_t bits = 0;
    for (size_t k = 0; k < 3; ++k) bits = bits << 8 | (k < n ? static_cast<uint8_t>(bytes[i + k]) : 0u);
    for (size_t k = 0; k < 4; ++k) text.push_back(k <= n ? kAlphabet[(bits >> (18 - 6 * k)) & 63u] : '=');
  }
  return text;
}

struct Line {
  std::string token;
  uint64_t rank;
};

Line parse_line(std::string_view line, const std::string& name, size_t number) {
  const size_t space = line.find(' ');
  std::optional<std::string> token = decode_base64(line.substr(0, space));
  if (!token || space == std::string_view::npos)
    fail(ErrorKind::kData, "{}:{}: expected 'BASE64 RANK', got '{}'; is this a .tiktoken file?", name, number,
         printable_token(std::string(line.substr(0, 64))));
  if (token->size() > kMaxTokenBytes)
    fail(ErrorKind::kData, "{}:{}: a token of {} bytes is too long (at most {})", name, number, token->size(),
         kMaxTokenBytes);
  const std::string_view digits = line.substr(space + 1);
  uint64_t rank = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), rank);
  if (error != std::errc() || end != digits.data() + digits.size())
    fail(ErrorKind::kData, "{}:{}: the rank must be a whole number, got '{}'", name, number,
         printable_token(std::string(digits.substr(0, 64))));
  return {std::move(*token), rank};
}

}  // namespace

std::vector<std::string> read_tiktoken(std::string_view text, const std::string& name) {
  if (text.size() > kMaxTokenizerFileBytes)
    fail(ErrorKind::kData, "{}: {} bytes is too large for a tokenizer (at most {})", name, text.size(),
         kMaxTokenizerFileBytes);
  const uint64_t line_count = static_cast<uint64_t>(std::count(text.begin(), text.end(), '\n')) + 1;
  const uint64_t max_rank = line_count + kMaxUnusedTokenIds;
  std::vector<std::string> tokens;
  size_t number = 0;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    std::string_view line = text.substr(begin, end - begin);
    if (line.ends_with('\r')) line.remove_suffix(1);
    begin = end + 1, ++number;
    if (line.empty()) continue;
    Line entry = parse_line(line, name, number);
    if (entry.rank >= max_rank)
      fail(ErrorKind::kData, "{}:{}: rank {} is out of proportion to {} lines", name, number, entry.rank,
           line_count);
    if (entry.rank >= tokens.size()) tokens.resize(entry.rank + 1);
    if (!tokens[entry.rank].empty())
      fail(ErrorKind::kData, "{}:{}: rank {} occurs twice", name, number, entry.rank);
    tokens[entry.rank] = std::move(entry.token);
  }
  if (tokens.empty()) fail(ErrorKind::kData, "{}: holds no tokens; is the download complete?", name);
  return tokens;
}

std::string write_tiktoken(const std::vector<std::string>& tokens) {
  std::string text;
  for (size_t rank = 0; rank < tokens.size(); ++rank)
    if (!tokens[rank].empty()) text += fmt::format("{} {}\n", encode_base64(tokens[rank]), rank);
  return text;
}

}  // namespace ingot
