#include "ingot/config/toml_depth.h"

#include <algorithm>
#include <vector>

#include "ingot/core/error.h"
#include "ingot/core/file.h"

namespace ingot {
namespace {

// Returns the length of the string or comment at the beginning of the text, or 0 if neither begins there.
// One without an end reaches to the end of its line; a multi-line string reaches to the end of the text.
size_t passed_over_bytes(std::string_view text) {
  const char first = text[0];
  if (first != '#' && first != '"' && first != '\'') return 0;
  const size_t line_bytes = std::min(text.find('\n'), text.size());
  if (first == '#') return line_bytes;
  const bool is_long = text.size() >= 3 && text[1] == first && text[2] == first;
  const size_t quotes = is_long ? 3 : 1, limit = is_long ? text.size() : line_bytes;
  for (size_t i = quotes; i < limit; ++i) {
    if (first == '"' && text[i] == '\\')
      ++i;
    else if (text.substr(i).starts_with(text.substr(0, quotes)))
      return i + quotes;
  }
  return limit;
}

// The nesting levels at one position of the text.
struct Levels {
  int64_t header = 0;         // dots of the last [a.b.c]
  std::vector<int64_t> open;  // per open bracket: 1 + dots of the key before it
  int64_t sum = 0;            // sum of `open`
  int64_t dots = 0;           // dots of the current key (or number)

  int64_t depth() const { return header + sum + dots; }

  void take(char c) {
    if (c == '.') {
      ++dots;
    } else if (c == '[' || c == '{') {
      open.push_back(1 + dots);
      sum += open.back();
      dots = 0;
    } else if ((c == ']' || c == '}') && !open.empty()) {
      sum -= open.back();
      open.pop_back();
      dots = 0;
    } else if (c == ',' || c == '\n') {
      dots = 0;
    }
  }
};

}  // namespace

std::string read_toml_file(const std::filesystem::path& file) {
  std::error_code ignored;
  const auto bytes = std::filesystem::file_size(file, ignored);
  if (!ignored && bytes > kMaxTomlBytes)
    fail(ErrorKind::kUsage, "{}: has {} MB, and a TOML file at most {}; text to train on stands after --data",
         file.string(), bytes >> 20, kMaxTomlBytes >> 20);
  try {
    return read_file(file);
  } catch (const Error& error) {
    throw Error(error.what(), ErrorKind::kUsage);
  }
}

std::optional<int64_t> too_deep_toml_line(std::string_view text) {
  Levels levels;
  int64_t line = 1;
  bool is_line_start = true, is_header = false;
  for (size_t i = 0; i < text.size();) {
    if (const size_t bytes = passed_over_bytes(text.substr(i))) {
      line += std::count(text.begin() + static_cast<std::ptrdiff_t>(i),
                         text.begin() + static_cast<std::ptrdiff_t>(i + bytes), '\n');
      i += bytes;
      is_line_start = false;
      continue;
    }
    const char c = text[i++];
    if (is_line_start && levels.open.empty() && c == '[') {
      is_header = true;
      levels.header = levels.dots = 0;
    }
    if (is_header && c == '.') ++levels.header;
    if (!is_header) levels.take(c);
    if (levels.depth() > kMaxTomlDepth) return line;
    if (c == '\n') {
      ++line;
      is_header = false;
    }
    is_line_start = c == '\n' || (is_line_start && (c == ' ' || c == '\t' || c == '\r'));
  }
  return std::nullopt;
}

}  // namespace ingot
