// What kind of text a file holds, by its name and its first bytes; files that are no text are refused here.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>

namespace ingot {

enum class TextFormat {
  kPlain,      // the whole file is one document
  kJsonLines,  // one JSON object per line, one document each
};

// `text` is the whole file (only its beginning is read here). .jsonl and .ndjson are JSON Lines; .json is
// JSON Lines too unless it begins with '['. kData error, with a command that converts the file where there is
// one, for: an empty file, token shards, JSON arrays, CSV and other tables, and formats known by their first
// bytes or their name (compressed files, Parquet, Arrow, PDF, images, archives ...).
TextFormat text_format(const std::filesystem::path& path, std::string_view text);

// Checks the next stretch of a file's text, so that a file of any size is checked in stretches: text[0,
// begin) is checked already, text[begin, end) is checked now. Returns where the next stretch begins: `end`,
// or less where a character is cut there. kData error, with the place, for a NUL byte and for what is not
// UTF-8.
size_t check_text(std::string_view text, size_t begin, size_t end, const std::string& file);

}  // namespace ingot
