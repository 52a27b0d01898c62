// JSON Lines: one document per line, {"text": "...", ...}. The file is mapped and read a line at a time; a
// line may be as long as memory allows.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "ingot/core/file.h"

namespace ingot {

inline constexpr int kMaxJsonlDepth = 64;  // nesting of a line's values

// The string in `field` of the object that `line` holds, as UTF-8. An escaped NUL is a character like others;
// other members are checked as JSON and ignored. `file` and `line_number` are for errors, all of kind kData:
// not an object, not JSON (bad escape, unpaired surrogate, invalid UTF-8, raw control character, nesting
// beyond kMaxJsonlDepth), field absent, twice or not a string.
std::string parse_jsonl_line(std::string_view line, std::string_view field, std::string_view file,
                             int64_t line_number);

class JsonlReader {
 public:
  explicit JsonlReader(const std::filesystem::path& path, std::string field = "text");

  // Puts the next document into `text`; false at the end. Blank lines are passed over.
  bool next(std::string& text);
  // The next line that is not blank, not yet parsed: a view of the mapped file, without its newline.
  bool next_line(std::string_view& line);
  const std::filesystem::path& path() const { return file_.path(); }
  // Number of the line that was read last, from 1.
  int64_t line() const { return line_; }

 private:
  MappedFile file_;
  std::string field_;
  std::string_view rest_;
  int64_t line_ = 0;
};

}  // namespace ingot
