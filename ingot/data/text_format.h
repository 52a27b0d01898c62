// Detects the format of a text file from its name and first bytes, and refuses files that are not text.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>

namespace ingot {

enum class TextFormat {
  kPlain,      // the whole file is one document
  kJsonLines,  // each line is a JSON object and one document
};

// The beginning of a file's text.
struct TextHead {
  std::filesystem::path path;  // for errors
  std::filesystem::path
      name;  // decides by its extension: that of the path, without .gz or .zst if it is compressed
  std::string_view text;
  bool is_whole = true;  // false if the file has more text after `text`
};

// Returns the format of a file, of which only the beginning is read. .jsonl and
// .ndjson are JSON Lines; so is .json if its first line is a whole JSON object. kData error, with a
// conversion command where there is one, for an empty file, UTF-16, token shards, JSON arrays, CSV and other
// tables, and formats known by their first bytes or their name (compressed files, Parquet, Arrow, PDF,
// images, archives ...).
TextFormat text_format(const TextHead& head);

// Returns the length of the byte order mark (U+FEFF) with which a text begins, which is no part of it; 0
// without one.
inline size_t byte_order_mark_bytes(std::string_view text) {
  return text.starts_with("\xef\xbb\xbf") ? 3 : 0;
}

// Checks one range of a file's text, so that a file of any size can be checked range by range: text[0,
// begin) has been checked before, text[begin, end) is checked now. Returns where the next range begins:
// `end`, or less if `end` cuts a character. kData error, with the place, for a NUL byte or invalid UTF-8.
size_t check_text(std::string_view text, size_t begin, size_t end, const std::string& file);

// Checks a text that arrives in blocks, with the same errors.
class TextBlockCheck {
 public:
  explicit TextBlockCheck(std::string file) : file_(std::move(file)) {}

  // Returns how many bytes of `block` are whole characters; the next block must begin with the rest, of at
  // most three bytes. is_last: the text ends with this block.
  size_t check(std::string_view block, bool is_last);

 private:
  std::string file_;
  size_t offset_ = 0;     // bytes before the block
  int64_t newlines_ = 0;  // in them
};

}  // namespace ingot
