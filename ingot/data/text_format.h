// Detects the format of a text file from its name and first bytes, and refuses files that are not text.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>

namespace ingot {

enum class TextFormat {
  kPlain,      // the whole file is one document
  kJsonLines,  // each line is a JSON object and one document
};

// Returns the format of a file. `text` is the whole file, but only its beginning is read. .jsonl and
// .ndjson are JSON Lines; so is .json if its first line is a whole JSON object. kData error, with a
// conversion command where there is one, for an empty file, token shards, JSON arrays, CSV and other
// tables, and formats known by their first bytes or their name (compressed files, Parquet, Arrow, PDF,
// images, archives ...).
TextFormat text_format(const std::filesystem::path& path, std::string_view text);

// Checks one range of a file's text, so that a file of any size can be checked range by range: text[0,
// begin) has been checked before, text[begin, end) is checked now. Returns where the next range begins:
// `end`, or less if `end` cuts a character. kData error, with the place, for a NUL byte or invalid UTF-8.
size_t check_text(std::string_view text, size_t begin, size_t end, const std::string& file);

}  // namespace ingot
