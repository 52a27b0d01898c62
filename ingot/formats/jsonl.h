// JSON Lines: one document per line, {"text": "...", ...}. The file is mapped and read line by line; a gzip
// or zstd file is unpacked a few lines at a time. A line has at most kMaxJsonlLineBytes: parsing it takes up
// to three times its length of memory, and a small compressed file could hold a line of any length.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

#include "ingot/core/file.h"
#include "ingot/formats/compressed.h"

namespace ingot {

inline constexpr int kMaxJsonlDepth = 64;  // nesting of a line's values
inline constexpr size_t kMaxJsonlLineBytes = size_t{256} << 20;

// Returns the string in `field` of the JSON object `line`, as UTF-8; other
// members are checked as JSON and ignored. Errors name `file` and `line_number` and are of kind kData:
// the line is not an object or not JSON (bad escape, unpaired surrogate, invalid UTF-8, raw control
// character, nesting beyond kMaxJsonlDepth), or the field is absent, given twice, not a string or holds a
// NUL.
std::string parse_jsonl_line(std::string_view line, std::string_view field, std::string_view file,
                             int64_t line_number);

class JsonlReader {
 public:
  explicit JsonlReader(const std::filesystem::path& path, std::string field = "text");

  // Puts the next document into `text`. Returns false at the end of the file. Skips blank lines.
  bool next(std::string& text);

  // Makes more lines available to next_line(): of a compressed file about `bytes` of text, at least one line;
  // of a mapped one all lines. Lines of earlier calls become invalid. Returns false at the end of the file.
  // kData error if the compressed data are damaged, or a compressed line is too long.
  bool fill(size_t bytes);
  // Returns the next available line that is not blank, unparsed and without its newline. The view is valid
  // until the next fill(). Returns false if no line is left: fill() may make more available. kData error if
  // the line is too long.
  bool next_line(std::string_view& line);
  // Bytes of the file that have been read, and the file as it is, compressed or not.
  size_t position() const;
  std::string_view file() const { return file_.text(); }

  const std::filesystem::path& path() const { return file_.path(); }
  // Number of the line read last, counted from 1.
  int64_t line() const { return line_; }

 private:
  void unpack(size_t bytes);
  void check_line_bytes(size_t bytes) const;

  MappedFile file_;
  std::string field_;
  std::string_view rest_;                       // available lines
  std::unique_ptr<Decompressor> decompressor_;  // null if the file is not compressed
  std::string buffer_;                          // unpacked text: rest_, and the beginning of a line behind it
  size_t ready_bytes_ = 0;                      // bytes of the buffer that are whole lines
  bool is_begun_ = false, is_unpacked_ = false;
  int64_t line_ = 0;
};

}  // namespace ingot
