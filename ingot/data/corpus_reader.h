// Reads a corpus in order, a batch of documents at a time, so that a corpus of any size is read in bounded
// memory: JSON Lines are parsed a stretch at a time by all threads, long files are mapped.
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
#include "ingot/formats/jsonl.h"

namespace ingot {

inline constexpr size_t kBatchBytes = size_t{8} << 20;         // about so much text is in a batch
inline constexpr size_t kLongDocumentBytes = size_t{1} << 20;  // such a document is a batch of its own

// A document that owns its text: a mapped file's, or a string.
struct ReadDocument {
  std::string name;  // file, or file:line of JSON Lines
  std::string text;
  std::optional<MappedFile> file;

  std::string_view view() const { return file ? file->text() : std::string_view(text); }
};

class CorpusReader {
 public:
  // Specs as load_documents takes them. A second reading of the same files need not check again that they are
  // UTF-8 text. Errors as load_documents, when the reading gets there.
  CorpusReader(std::span<const std::string> specs, std::string jsonl_field, bool checks_text = true);

  // Replaces `batch` by the next documents: about kBatchBytes of them, or a single long one. Documents
  // without text are left out. Returns false at the end.
  bool next(std::vector<ReadDocument>& batch);

  // How far the reading of the files is.
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
  bool read_lines(std::vector<ReadDocument>& batch);
  void parse(std::span<const Line> lines, std::vector<ReadDocument>& batch) const;

  std::string jsonl_field_;
  bool checks_text_;
  std::vector<Entry> entries_;
  size_t next_entry_ = 0;
  std::optional<ReadDocument> held_;    // a long document for the next call
  std::unique_ptr<JsonlReader> lines_;  // the JSON Lines file being read
  bool has_lines_text_ = false;         // it held a document with text
  size_t batch_bytes_ = 0;
  int64_t bytes_ = 0, bytes_read_ = 0;
};

// Lets go of the pages of a mapped text that has been read, so that they do not count as this process's
// memory. They are read from the file again when they are touched. REQUIRES: `text` lies in a MappedFile.
void release_pages(std::string_view text);

// Offset of the first character at or after i. REQUIRES: valid UTF-8.
size_t character_begin(std::string_view text, size_t i);

}  // namespace ingot
