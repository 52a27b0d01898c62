// Reads a corpus in order, one batch of documents at a time, so that memory is bounded whatever the size
// of the corpus. All threads parse JSON Lines, some lines at a time; long files are mapped. Files that gzip
// or zstd has compressed are unpacked as they are read, so a long one comes in several parts.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ingot/core/file.h"
#include "ingot/data/text_format.h"
#include "ingot/formats/compressed.h"
#include "ingot/formats/jsonl.h"

namespace ingot {

inline constexpr size_t kBatchBytes = size_t{8} << 20;         // approximate amount of text in a batch
inline constexpr size_t kLongDocumentBytes = size_t{1} << 20;  // a file this long is a batch of its own

// A document, or a part of a long compressed one. It owns its text, either as a mapped file or as a string.
struct ReadDocument {
  std::string name;  // file, or file:line of JSON Lines
  std::string text;
  std::optional<MappedFile> file;
  bool begins = true, ends = true;  // false if the document has text before, or after, this part

  // The text without the byte order mark of a mapped file; `text` has none.
  std::string_view view() const {
    return file ? file->text().substr(byte_order_mark_bytes(file->text())) : std::string_view(text);
  }
};

// The text of a compressed file, a block at a time.
class UnpackedText {
 public:
  explicit UnpackedText(MappedFile file, bool checks_text);

  // Appends about `bytes` more bytes to `text`, which must be whole characters. Returns false if the text
  // ends there. Errors: those of Decompressor and check_text.
  bool read(size_t bytes, std::string& text);
  const MappedFile& file() const { return file_; }
  size_t position() const { return decompressor_.position(); }

 private:
  MappedFile file_;
  Decompressor decompressor_;
  std::optional<TextBlockCheck> check_;
  std::string cut_;  // the first bytes of a character, which the last block has cut
};

class CorpusReader {
 public:
  // Takes the same specs as load_documents, and next() throws the same errors when it reaches the file. A
  // caller that has read the files before may set checks_text to false to skip the UTF-8 check.
  CorpusReader(std::span<const std::string> specs, std::string jsonl_field, bool checks_text = true);

  // Replaces `batch` with the next documents: about kBatchBytes of text, a single long file, or the next part
  // of a long compressed file, which is cut between characters and whose last part may be empty. Documents
  // without text are left out. Returns false at the end.
  bool next(std::vector<ReadDocument>& batch);

  // Progress: bytes of the files read so far, and in total.
  int64_t bytes_read() const { return bytes_read_; }
  int64_t bytes() const { return bytes_; }

 private:
  struct Entry {
    std::string builtin;  // "builtin:..." or empty
    std::filesystem::path path;
  };
  struct Line {
    std::string_view text;
    int64_t number;
  };

  void open(const Entry& entry, std::vector<ReadDocument>& batch);
  void open_file(const std::filesystem::path& path, std::vector<ReadDocument>& batch);
  void open_compressed(MappedFile file, std::vector<ReadDocument>& batch);
  void open_lines(const std::filesystem::path& path);
  ReadDocument next_part();
  bool read_lines(std::vector<ReadDocument>& batch);
  void parse(std::span<const Line> lines, std::vector<ReadDocument>& batch) const;

  std::string jsonl_field_;
  bool checks_text_;
  std::vector<Entry> entries_;
  size_t next_entry_ = 0;
  std::optional<ReadDocument> held_;      // a long document, returned by the next call
  std::unique_ptr<JsonlReader> lines_;    // the JSON Lines file being read
  bool has_lines_text_ = false;           // true once lines_ has yielded a document with text
  std::optional<UnpackedText> unpacked_;  // the long compressed file being read
  bool unpacked_begins_ = false;          // no part of it has been read
  size_t batch_bytes_ = 0;
  int64_t bytes_ = 0, bytes_read_ = 0;
};

// Releases the resident pages of a mapped text that has been read, so that they do not count as this
// process's memory. Pages are read from the file again when they are touched. REQUIRES: `text` lies
// in a MappedFile.
void release_pages(std::string_view text);

// Returns the offset of the first character at or after i. REQUIRES: `text` is valid UTF-8.
size_t character_begin(std::string_view text, size_t i);

}  // namespace ingot
