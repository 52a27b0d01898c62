// JSON Lines: one document per line, {"text": "...", ...}. The file is mapped and read line by line; the
// length of a line is limited only by memory.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "ingot/core/file.h"

namespace ingot {

inline constexpr int kMaxJsonlDepth = 64;  // nesting of a line's values

// Returns the string in `field` of the JSON object `line`, as UTF-8. An escaped NUL is an ordinary character;
// other members are checked as JSON and ignored. Errors name `file` and `line_number` and are of kind kData:
// the line is not an object or not JSON (bad escape, unpaired surrogate, invalid UTF-8, raw control
// character, nesting beyond kMaxJsonlDepth), or the field is absent, given twice or not a string.
std::string parse_jsonl_line(std::string_view line, std::string_view field, std::string_view file,
                             int64_t line_number);

class JsonlReader {
 public:
  explicit JsonlReader(const std::filesystem::path& path, std::string field = "text");

  // Puts the next document into `text`. Returns false at the end of the file. Skips blank lines.
  bool next(std::string& text);
  // Returns the next line that is not blank, unparsed and without its newline, as a view of the mapped
  // file. Returns false at the end.
  bool next_line(std::string_view& line);
  const std::filesystem::path& path() const { return file_.path(); }
  // Number of the line read last, counted from 1.
  int64_t line() const { return line_; }

 private:
  MappedFile file_;
  std::string field_;
  std::string_view rest_;
  int64_t line_ = 0;
};

}  // namespace ingot
