// A corpus: the documents of text files, folders, globs and JSON Lines files, in a fixed order.
#pragma once

#include <cstdint>
#include <deque>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ingot/core/file.h"

namespace ingot {

struct Document {
  std::string name;       // file, or file:line of JSON Lines
  std::string_view text;  // UTF-8 without NUL bytes, but for escaped NULs of JSON Lines
};

// Documents in order. Copies are cheap and share the texts (split() makes two views of one corpus), which
// live as long as any of them.
class Documents {
 public:
  Documents() : storage_(std::make_shared<Storage>()) {}

  void add(std::string name, std::string text);
  // The whole file as one document, mapped.
  void add(MappedFile file);

  size_t size() const { return documents_.size(); }
  bool empty() const { return documents_.empty(); }
  const Document& operator[](size_t i) const { return documents_[i]; }
  auto begin() const { return documents_.begin(); }
  auto end() const { return documents_.end(); }
  std::vector<std::string_view> texts() const;

  int64_t size_bytes() const;
  // XXH3-64 of the texts and of where they end; names do not count.
  uint64_t content_hash() const;

 private:
  friend struct DocumentSplit split(const Documents& documents, double val_fraction);
  struct Storage {  // shared by a corpus and its parts, whose views point into it
    std::deque<std::string> strings;
    std::deque<MappedFile> files;
  };
  std::shared_ptr<Storage> storage_;
  std::vector<Document> documents_;
};

// Files that `specs` name: a file stands for itself, a folder for the regular files in it and below, sorted
// by path and without hidden ones, a pattern (* ? [) for its sorted matches. kData error if one names
// nothing.
std::vector<std::filesystem::path> expand_paths(std::span<const std::string> specs);

// The documents of `specs` (as expand_paths, or a built-in corpus, see builtin_corpus.h). A file of JSON
// Lines has one document per line, the text in `jsonl_field`; any other file is one document (text_format.h).
// Documents without text are left out. kData error, by file and place, for: nothing there, unreadable, empty,
// not text (NUL bytes, compressed, tables, JSON arrays ...), not UTF-8, token shards.
Documents load_documents(std::span<const std::string> specs, const std::string& jsonl_field = "text");

struct DocumentSplit {
  Documents train, val;
};

// Validation is the last part in order. Of one document: its last characters, cut where nanoGPT cuts, train =
// the first int(characters * (1 - val_fraction)) code points. Of several: the last documents, cut where the
// bytes come nearest to val_fraction, at least one document on either side. val is empty for val_fraction 0.
// kUsage error unless 0 <= val_fraction < 1.
DocumentSplit split(const Documents& documents, double val_fraction);

// load_documents and split; a built-in corpus, alone, brings its own split and ignores val_fraction unless it
// is 0.
DocumentSplit load_split(std::span<const std::string> specs, double val_fraction,
                         const std::string& jsonl_field = "text");

// Whether load_split takes the split that a built-in corpus brings.
bool has_own_split(std::span<const std::string> specs, double val_fraction);

// kUsage error unless 0 <= val_fraction < 1.
void check_val_fraction(double val_fraction);

// The kData error of a corpus without text.
[[noreturn]] void fail_no_text();

}  // namespace ingot
